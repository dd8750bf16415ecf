// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes small zip archives field by field, wrong ones too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codec/pickle_bytes_maker.h"

namespace dbg::test {

/// One entry; the fields that a test may want to lie about.
struct ZipFields {
  std::string name;
  std::string data;
  std::string header_name = {};  // default: name
  std::uint32_t checksum = 0;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::uint64_t size = 0;           // default: of data
  std::uint64_t header_offset = 0;  // default: where it is
  std::string extra = {};
};

struct ZipEnd {
  std::uint64_t entries = 0;
  std::uint64_t records_bytes = 0;
  std::uint64_t records_offset = 0;
  std::uint16_t disk = 0;
  std::string comment = {};
  bool zip64 = false;
  std::uint64_t end64_offset = 0;  // default: where it is
};

/// The archive; `change` may alter what its end says.
inline std::string zip_of(const std::vector<ZipFields>& entries, const std::function<void(ZipEnd&)>& change = {}) {
  using pickled::little_endian;
  std::string out;
  std::string records;
  for (const ZipFields& entry : entries) {
    const std::uint64_t offset = entry.header_offset != 0 ? entry.header_offset : out.size();
    const std::uint64_t size = entry.size != 0 ? entry.size : entry.data.size();
    const std::string header_name = entry.header_name.empty() ? entry.name : entry.header_name;
    const std::string sizes = little_endian(entry.checksum, 4) + little_endian(size, 4) + little_endian(size, 4);
    const std::string shared =
        little_endian(entry.flags, 2) + little_endian(entry.method, 2) + little_endian(0, 4) + sizes;
    out += "PK\x03\x04" + little_endian(45, 2) + shared + little_endian(header_name.size(), 2) + little_endian(0, 2) +
           header_name + entry.data;
    records += "PK\x01\x02" + little_endian(45, 2) + little_endian(45, 2) + shared +
               little_endian(entry.name.size(), 2) + little_endian(entry.extra.size(), 2) + little_endian(0, 10) +
               little_endian(offset, 4);
    // little_endian(0, 10): comment length, disk, internal and external attributes.
    records += entry.name + entry.extra;
  }
  ZipEnd end{entries.size(), records.size(), out.size()};
  if (change) change(end);
  out += records;
  if (end.zip64) {
    const std::uint64_t end64 = end.end64_offset != 0 ? end.end64_offset : out.size();
    out += "PK\x06\x06" + little_endian(44, 8) + little_endian(45, 2) + little_endian(45, 2) +
           little_endian(end.disk, 4) + little_endian(0, 4) + little_endian(end.entries, 8) +
           little_endian(end.entries, 8) + little_endian(end.records_bytes, 8) + little_endian(end.records_offset, 8);
    out += "PK\x06\x07" + little_endian(0, 4) + little_endian(end64, 8) + little_endian(1, 4);
    end.entries = end.records_bytes = end.records_offset = 0xffffffff;
  }
  out += "PK\x05\x06" + little_endian(end.disk, 2) + little_endian(0, 2) + little_endian(end.entries, 2) +
         little_endian(end.entries, 2) + little_endian(end.records_bytes, 4) + little_endian(end.records_offset, 4) +
         little_endian(end.comment.size(), 2) + end.comment;
  return out;
}

}  // namespace dbg::test
