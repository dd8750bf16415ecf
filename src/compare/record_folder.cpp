// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Finds and lists a folder's records.
#include "compare/record_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/formatted.h"
#include "compare/sequence_lengths.h"
#include "dbg/dump_record.h"
#include "dbg/error.h"
#include "dump/record_name.h"

namespace dbg::compare {
namespace {

namespace fs = std::filesystem;

// The tags as a filter sees them: numbers as numbers again.
Tags typed(const Tags& tags) {
  Tags result;
  for (const auto& [key, value] : tags) {
    const std::string_view text = value.view().text();
    std::int64_t integer = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (key != "name" && error == std::errc() && stop == text.data() + text.size()) {
      result.set(key, integer);
    } else if (text == "None" && key != "name") {
      result.set(key, TagValue());
    } else if ((text == "True" || text == "False") && key != "name") {
      result.set(key, text == "True");
    } else {
      result.set(key, value);
    }
  }
  return result;
}

// The records' paths; a refusal says which of the folders it is of.
std::vector<std::string> list_of(const std::string& folder, const std::string& what) {
  try {
    return list_records(folder);
  } catch (const IoError& error) {
    throw IoError(formatted("{}: {}; name the folder that a run dumped into", what, error.what()), error.code());
  }
}

std::vector<std::string> folders_with_records(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    try {
      if (!list_records(entry->path().string()).empty()) found.push_back(entry->path().string());
    } catch (const IoError&) {
      // One that can't be listed is none of ours.
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

RecordFolder open_folder(const std::string& folder, const std::string& what, const Filter& where) {
  RecordFolder opened;
  opened.path = folder;
  while (opened.path.size() > 1 && opened.path.back() == '/') opened.path.pop_back();
  if (std::error_code ignored; fs::is_regular_file(opened.path, ignored)) {
    throw ConfigError(formatted("{}: '{}' is a file; name the folder it lies in", what, opened.path));
  }
  std::vector<std::string> paths = list_of(opened.path, what);
  if (paths.empty()) {
    const std::vector<std::string> inner = folders_with_records(opened.path);
    if (inner.size() > 1) {
      throw ConfigError(formatted("{}: '{}' holds no records, and {} folders in it do; name one of them: {}", what,
                                  folder, inner.size(), fmt::join(inner, ", ")));
    }
    if (inner.empty()) {
      throw ConfigError(formatted(
          "{}: '{}' holds no records (files such as "
          "'step=0___rank=0___dump_index=1___name=x.pt'), and neither does a folder in it; name the folder that "
          "a run dumped into",
          what, folder));
    }
    opened.path = inner.front();
    opened.note = formatted("{}: '{}' holds no records; taken is '{}'", what, folder, opened.path);
    paths = list_of(opened.path, what);
  }
  const std::size_t all = paths.size();
  for (std::string& path : paths) {
    const std::optional<Tags> pairs = parse_record_name(fs::path(path).filename().native());
    if (!pairs) continue;  // list_records lists no others
    RecordDescriptor descriptor = describe_record(*pairs);
    if (tells_sequence_lengths(descriptor.name)) opened.length_records.push_back({path, descriptor});
    if (!where.matches_everything() && !where.matches(typed(*pairs))) continue;
    opened.records.push_back({std::move(path), std::move(descriptor)});
  }
  if (opened.records.empty()) {
    throw ConfigError(formatted("{}: none of the {} records of '{}' is let through by --where; see docs/filter.md",
                                what, all, opened.path));
  }
  return opened;
}

}  // namespace dbg::compare
