// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The directory of a zip archive as torch writes them: stored entries, zip64 where needed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "codec/byte_source.h"
#include "codec/read_limits.h"

namespace dbg::codec {

/// Where an entry's bytes lie in the source.
struct ZipEntry {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  /// 0 where the writer left it out, as torch and dbg do when told to.
  std::uint32_t checksum = 0;
};

/// A checked directory.
class ZipDirectory {
 public:
  /// Reads the directory at the end of `source`, of at most `max_entries` entries.
  /// Throws: IoError for anything but a whole, single-disk, unambiguous archive.
  ZipDirectory(const ByteSource& source, std::size_t max_entries);

  std::size_t size() const noexcept { return records_.size(); }

  // Names of entries are given without the folder in which the one `data.pkl` lies: torch puts everything below one.

  /// Whether there is an entry of this name.
  bool contains(const std::string& name) const { return records_.count(folder_ + name) != 0; }

  /// The bytes of an entry; its own header is checked now.
  /// Throws: IoError when it is not there, compressed, encrypted, or leaves the archive.
  ZipEntry entry(const std::string& name) const;

  /// Holds what was read of an entry against its checksum.
  /// Throws: IoError when they differ.
  void check(const std::string& name, const ZipEntry& entry, const void* data) const;

 private:
  struct Record {
    std::uint64_t header_offset = 0;
    std::uint64_t size = 0;
    std::uint64_t place = 0;  // of the record itself, for messages
    std::uint32_t checksum = 0;
    std::uint16_t method = 0;
    std::uint16_t flags = 0;
  };

  void read_record(std::string_view records, std::size_t& position);
  void find_folder();

  const ByteSource& source_;
  std::uint64_t records_offset_ = 0;
  std::string folder_;  // with its slash
  std::map<std::string, Record> records_;
};

}  // namespace dbg::codec
