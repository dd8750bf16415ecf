// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Records as files.
#include "dump/dump_record.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <compare>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "base/log.h"
#include "base/no_cancellation.h"
#include "codec/archive_reader.h"
#include "dbg/error.h"
#include "dbg/tags.h"
#include "dump/atomic_file.h"
#include "dump/record_name.h"

namespace dbg {
namespace {

bool has_text_keys(const c10::IValue& value) {
  if (!value.isGenericDict()) return false;
  const c10::impl::GenericDict dict = value.toGenericDict();
  return std::all_of(dict.begin(), dict.end(), [](const auto& entry) { return entry.key().isString(); });
}

c10::IValue root_of(const DumpRecord& record) {
  if (!has_text_keys(record.meta)) throw ConfigError("a record's meta must be a dict with text keys");
  c10::impl::GenericDict root(c10::StringType::get(), c10::AnyType::get());
  root.insert("value", record.value);
  root.insert("meta", record.meta);
  return root;
}

struct Place {
  std::int64_t step = 0;
  std::int64_t rank = 0;
  std::int64_t dump_index = 0;
  std::string name;

  auto operator<=>(const Place&) const = default;
};

std::optional<std::int64_t> integer_of(const Tags& tags, std::string_view key) {
  const std::string_view text = tags.find(key)->view().text();
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// Where a record of this file name stands; nullopt when it is none.
std::optional<Place> place_of(std::string_view name) {
  const std::optional<Tags> tags = parse_record_name(name);
  if (!tags) return std::nullopt;
  const std::optional<std::int64_t> step = integer_of(*tags, "step");
  const std::optional<std::int64_t> rank = integer_of(*tags, "rank");
  const std::optional<std::int64_t> dump_index = integer_of(*tags, "dump_index");
  if (!step || !rank || !dump_index) return std::nullopt;
  return Place{*step, *rank, *dump_index, std::string(name)};
}

// Tells the caller what a reader left out; where nobody asked, the log.
void report_refusals(const std::string& path, const std::vector<codec::Refusal>& refusals,
                     std::vector<std::string>* left_out) {
  for (const codec::Refusal& refusal : refusals) {
    if (left_out != nullptr) left_out->push_back(formatted("{}: {}", refusal.path, refusal.reason));
  }
  if (left_out == nullptr && !refusals.empty()) {
    base::log(LogLevel::warning, "Record", "'{}': left out {} entries that can't be held, the first at {}: {}", path,
              refusals.size(), refusals.front().path, refusals.front().reason);
  }
}

}  // namespace

void write_record(const std::string& path, const DumpRecord& record, const RecordOptions& options) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string_view name = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
  if (!dumping::store_record(folder, name, record, options).is_stored) {
    throw IoError(formatted("record '{}' not written: {}", path, base::errno_text(EEXIST)), EEXIST);
  }
}

DumpRecord read_record(const std::string& path, std::vector<std::string>* left_out, const ReadLimits& limits) {
  return dumping::read_record_within(path, limits, left_out);
}

std::vector<std::string> list_records(const std::string& folder) {
  std::error_code error;
  std::vector<Place> places;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::optional<Place> place = place_of(entry->path().filename().native());
    std::error_code ignored;
    if (place && entry->is_regular_file(ignored)) places.push_back(std::move(*place));
  }
  if (error) {
    throw IoError(formatted("folder '{}' can't be listed: {}", folder, base::errno_text(error.value())), error.value());
  }
  std::sort(places.begin(), places.end());
  std::vector<std::string> paths;
  paths.reserve(places.size());
  for (const Place& place : places) paths.push_back(formatted("{}/{}", folder, place.name));
  return paths;
}

namespace dumping {

DumpRecord read_record_within(const std::string& path, const codec::ReadLimits& limits,
                              std::vector<std::string>* left_out) {
  std::vector<codec::Refusal> refusals;
  const c10::IValue root = codec::read_archive_file(path, limits, &refusals);
  DumpRecord record;
  bool has_value = false;
  if (root.isGenericDict()) {
    for (const auto& entry : root.toGenericDict()) {
      if (!entry.key().isString()) continue;
      if (entry.key().toStringView() == "value") {
        record.value = entry.value();
        has_value = true;
      } else if (entry.key().toStringView() == "meta") {
        record.meta = entry.value();
      }
    }
  }
  // A value that the reader had to leave out as a whole is missing, too; `refusals` then says so.
  if (!has_text_keys(record.meta) || (!has_value && refusals.empty())) {
    throw IoError(formatted("'{}' is no record: it holds no dict with the keys value and meta", path));
  }
  report_refusals(path, refusals, left_out);
  return record;
}

StoreResult store_record(const std::string& folder, std::string_view name, const DumpRecord& record,
                         const RecordOptions& options, FileSystem& files) {
  return store_record(folder, name, codec::Archive(root_of(record), {.checksum = options.checksum}), files);
}

StoreResult store_record(const std::string& folder, std::string_view name, const codec::Archive& archive,
                         FileSystem& files) {
  const base::NoCancellation until_stored;
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos) {
    throw IoError(formatted("record '{}' in folder '{}' not written: that is no file name", name, folder), EINVAL);
  }
  try {
    AtomicFile file(folder, files);
    archive.write_to(file);
    const bool is_stored = file.publish(name);
    return {is_stored, file.size_bytes()};
  } catch (const IoError& error) {
    throw IoError(
        formatted("record '{}/{}' of {} bytes not written: {}", folder, name, archive.size_bytes(), error.what()),
        error.code());
  }
}

}  // namespace dumping
}  // namespace dbg
