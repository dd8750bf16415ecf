// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Records as files.
#include "dump/dump_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <compare>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/errno_text.h"
#include "codec/archive.h"
#include "dbg/error.h"
#include "dump/atomic_file.h"

namespace dbg {
namespace {

constexpr std::string_view kExtension = ".pt";
constexpr std::string_view kPairSeparator = "___";

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

std::optional<std::int64_t> integer_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// Where a record of this file name stands; nullopt when it is none.
std::optional<Place> place_of(std::string_view name) {
  if (!name.ends_with(kExtension) || name.starts_with('.')) return std::nullopt;
  std::string_view rest = name.substr(0, name.size() - kExtension.size());
  std::optional<std::int64_t> step, rank, dump_index;
  while (true) {
    const std::size_t end = rest.find(kPairSeparator);
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos) {
      const std::string_view key = pair.substr(0, equals);
      const std::string_view value = pair.substr(equals + 1);
      if (key == "step") step = integer_in(value);
      if (key == "rank") rank = integer_in(value);
      if (key == "dump_index") dump_index = integer_in(value);
    }
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + kPairSeparator.size());
  }
  if (!step || !rank || !dump_index) return std::nullopt;
  return Place{*step, *rank, *dump_index, std::string(name)};
}

}  // namespace

void write_record(const std::string& path, const DumpRecord& record, const RecordOptions& options) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const std::string_view name = std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
  if (!dumping::store_record(folder, name, record, options).is_stored) {
    throw IoError(fmt::format("record '{}' not written: {}", path, base::errno_text(EEXIST)), EEXIST);
  }
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
    throw IoError(fmt::format("folder '{}' can't be listed: {}", folder, base::errno_text(error.value())),
                  error.value());
  }
  std::sort(places.begin(), places.end());
  std::vector<std::string> paths;
  paths.reserve(places.size());
  for (const Place& place : places) paths.push_back(fmt::format("{}/{}", folder, place.name));
  return paths;
}

namespace dumping {

StoreResult store_record(const std::string& folder, std::string_view name, const DumpRecord& record,
                         const RecordOptions& options, FileSystem& files) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos) {
    throw IoError(fmt::format("record '{}' in folder '{}' not written: that is no file name", name, folder), EINVAL);
  }
  const codec::Archive archive(root_of(record), {.checksum = options.checksum});
  try {
    AtomicFile file(folder, files);
    archive.write_to(file);
    const bool is_stored = file.publish(name);
    return {is_stored, file.size_bytes()};
  } catch (const IoError& error) {
    throw IoError(
        fmt::format("record '{}/{}' of {} bytes not written: {}", folder, name, archive.size_bytes(), error.what()),
        error.code());
  }
}

}  // namespace dumping
}  // namespace dbg
