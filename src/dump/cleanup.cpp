// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Removes old records by name and age.
#include "dump/cleanup.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>

#include "base/formatted.h"
#include "base/no_cancellation.h"
#include "dbg/error.h"
#include "dump/atomic_file.h"
#include "dump/record_name.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRunPrefix = "dump_";

std::int64_t modified_ns(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return INT64_MAX;  // unknown counts as new
  return std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

void clean_up_folder(const fs::path& folder, std::int64_t claimed_ns, CleanupReport& report) {
  const std::string shown = folder.filename().string();
  std::vector<fs::path> old_records;
  bool holds_new_ones = false;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) {
    report.kept.push_back(formatted("{}: can't be listed ({})", shown, error.message()));
    return;
  }
  for (const fs::directory_iterator end; entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const bool is_ours = parse_record_name(name).has_value() || dumping::is_temporary_name(name);
    std::error_code ignored;  // what can't be looked at counts as foreign
    if (!is_ours || !entries->is_regular_file(ignored) || entries->is_symlink(ignored)) {
      report.kept.push_back(formatted("{}: holds '{}', which is no record", shown, name));
      return;
    }
    if (modified_ns(entries->path()) < claimed_ns) {
      old_records.push_back(entries->path());
    } else {
      holds_new_ones = true;
    }
  }
  if (error) {
    report.kept.push_back(formatted("{}: can't be listed to its end ({})", shown, error.message()));
    return;
  }
  for (const fs::path& record : old_records) {
    if (fs::remove(record, error)) ++report.records_removed;
    if (error) {
      report.kept.push_back(
          formatted("{}: '{}' can't be removed ({})", shown, record.filename().string(), error.message()));
      return;
    }
  }
  if (holds_new_ones) return;
  // Fails when a peer wrote meanwhile, and then it must.
  if (!old_records.empty() && fs::remove(folder, error) && !error) report.removed.push_back(shown);
}

}  // namespace

CleanupReport clean_up_previous(const std::string& dir, const std::string& exp_name, std::int64_t claimed_ns) {
  CleanupReport report;
  std::error_code error;
  fs::directory_iterator entries(dir, error);
  if (error == std::errc::no_such_file_or_directory) return report;
  if (error) throw IoError(formatted("can't list '{}': {}", dir, error.message()), error.value());
  std::vector<fs::path> folders;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kRunPrefix) && name != exp_name) continue;
    if (entry.is_directory(error) && !entry.is_symlink(error)) folders.push_back(entry.path());
  }
  for (const fs::path& folder : folders) clean_up_folder(folder, claimed_ns, report);
  return report;
}

std::size_t remove_leftovers(const std::string& dir, std::chrono::milliseconds patience) noexcept {
  const base::NoCancellation until_removed;
  std::size_t removed = 0;
  try {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    std::error_code error;
    std::vector<fs::path> folders;
    for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error)) {
      std::error_code ignored;
      const bool is_runs = entry->path().filename().string().starts_with(kRunPrefix);
      if (is_runs && entry->is_directory(ignored) && !entry->is_symlink(ignored)) folders.push_back(entry->path());
    }
    std::sort(folders.begin(), folders.end(), std::greater<>());  // their names are times
    for (const fs::path& folder : folders) {
      if (std::chrono::steady_clock::now() >= deadline) break;
      removed += dumping::remove_stale_temporaries(folder.string());
    }
  } catch (...) {
    // Out of memory: the rest stays for the next start.
  }
  return removed;
}

}  // namespace dbg
