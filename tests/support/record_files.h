// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Looks at what a Dumper left on disk: names, tags, modes, ages.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "dbg/config.h"
#include "dbg/dump_record.h"
#include "dump/atomic_file.h"
#include "dump/record_name.h"

namespace dbg::test {

/// The names of all entries of `folder`, sorted; none when it is not there.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  if (!std::filesystem::exists(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The folders of `dir` that are an experiment's: all but hidden ones.
inline std::vector<std::string> experiments_in(const std::filesystem::path& dir) {
  std::vector<std::string> names = names_in(dir);
  names.erase(std::remove_if(names.begin(), names.end(), [](const std::string& name) { return name.starts_with('.'); }),
              names.end());
  return names;
}

/// A tag of a record's file name, as text. Throws: std::runtime_error when the name has none of that key.
inline std::string tag_of(const std::filesystem::path& record, std::string_view key) {
  const auto tags = parse_record_name(record.filename().string());
  const TagValue* value = tags ? tags->find(key) : nullptr;
  if (value == nullptr) throw std::runtime_error(record.string() + " has no tag " + std::string(key));
  return std::string(value->view().text());
}

/// That tag of each record of `folder`, in the order of `list_records`.
inline std::vector<std::string> tags_in(const std::filesystem::path& folder, std::string_view key) {
  std::vector<std::string> values;
  for (const std::string& path : list_records(folder.string())) values.push_back(tag_of(path, key));
  return values;
}

/// Expects that a record's meta says what its name says, as real types, and which rank of how many wrote it.
inline void expect_meta_of_rank(const std::string& path, int world_size) {
  const auto meta = read_record(path).meta.toGenericDict();
  const auto integer = [&](const std::string& key) { return meta.at(key).toInt(); };
  for (const char* key : {"step", "rank", "dump_index"}) {
    EXPECT_EQ(std::to_string(integer(key)), tag_of(path, key)) << path;
  }
  EXPECT_EQ(meta.at("name").toStringRef(), tag_of(path, "name")) << path;
  EXPECT_EQ(integer("world_rank"), integer("rank")) << path;
  EXPECT_EQ(integer("world_size"), world_size) << path;
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// The permission bits.
inline unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) throw std::system_error(errno, std::generic_category(), path.string());
  return status.st_mode & 07777u;
}

/// When a file was written last, in nanoseconds since the epoch.
inline std::int64_t modified_ns(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) throw std::system_error(errno, std::generic_category(), path.string());
  return std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

inline void set_modified_ns(const std::filesystem::path& path, std::int64_t time_ns) {
  const timespec time{time_ns / 1000000000, time_ns % 1000000000};
  const timespec both[2] = {time, time};
  if (::utimensat(AT_FDCWD, path.c_str(), both, AT_SYMLINK_NOFOLLOW) != 0) {
    throw std::system_error(errno, std::generic_category(), path.string());
  }
}

/// Leaves a temporary file in `folder`, as a process of this machine that was killed would have. Returns its name.
inline std::string leave_temporary_of_dead_process(const std::filesystem::path& folder) {
  std::string name;
  {
    const dumping::AtomicFile living(folder.string());
    for (const std::string& entry : names_in(folder)) {
      if (entry.starts_with(".dbgtmp-")) name = entry;
    }
  }
  // This machine's part of the name, then a process number that is above the kernel's largest.
  name = name.substr(0, name.find('-', std::string_view(".dbgtmp-").size()) + 1) + "zik0zi-12-0";
  write_text(folder / name, "half a record");
  return name;
}

/// An enabled, quiet configuration that writes below `dir`.
inline DumperConfig quiet_config(const std::filesystem::path& dir) {
  DumperConfig config;
  config.enable = true;
  config.dir = dir.string();
  config.enable_output_console = false;
  return config;
}

}  // namespace dbg::test
