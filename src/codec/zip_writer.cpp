// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of a zip archive (APPNOTE.TXT 6.3.x, "stored" only).
#include "codec/zip_writer.h"

#include <algorithm>

#include "codec/crc32.h"

namespace dbg::codec {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kGatherBytes = std::size_t{64} << 10;
// Above this the checksum is taken piece by piece, each while it is still in the cache that the write reads it from, and
// stands behind the data. Where it stands depends on the size only, so that an archive's length does.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kTrailingChecksum = 0x08074b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kMax32 = 0xFFFFFFFF;
constexpr std::uint16_t kMax16 = 0xFFFF;

constexpr std::uint16_t kVersionPlain = 20;
constexpr std::uint16_t kVersion64 = 45;
constexpr std::uint16_t kFlagTrailingChecksum = 1u << 3;
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kMidnight = 0;
// No time of writing: equal values make equal files. 1980-01-01 is the first day the format knows.
constexpr std::uint16_t kFirstDay = (1u << 5) | 1u;
constexpr std::uint16_t kExtra64 = 0x0001;
constexpr std::uint16_t kExtraPadding = 0x4246;  // "FB", which torch's own writer pads with
constexpr std::size_t kLocalHeaderBytes = 30;
constexpr std::size_t kExtraHeaderBytes = 4;

bool needs_64(std::uint64_t value) {
  return value >= kMax32;
}

}  // namespace

ZipWriter::ZipWriter(ByteSink& sink, bool checksum) : sink_(sink), checksum_(checksum) {}

void ZipWriter::flush() {
  if (error_ == 0 && !gathered_.empty()) error_ = sink_.write(gathered_.data(), gathered_.size());
  gathered_.clear();
}

void ZipWriter::put(const void* data, std::size_t size) {
  position_ += size;
  if (error_ != 0) return;
  if (gathered_.size() + size > kGatherBytes) {
    flush();
    if (size > kGatherBytes) {
      if (error_ == 0) error_ = sink_.write(data, size);
      return;
    }
  }
  gathered_.append(static_cast<const char*>(data), size);
}

template <class Integer>
void ZipWriter::put_integer(Integer value) {
  char bytes[sizeof value];
  for (std::size_t i = 0; i < sizeof value; ++i) bytes[i] = static_cast<char>((value >> (8 * i)) & 0xFF);
  put(bytes, sizeof bytes);
}

void ZipWriter::put_local_header(const Entry& entry) {
  const bool is_64 = needs_64(entry.size_bytes);
  const std::size_t extra_64 = is_64 ? kExtraHeaderBytes + 16 : 0;
  const std::uint64_t data_offset =
      entry.header_offset + kLocalHeaderBytes + entry.name.size() + extra_64 + kExtraHeaderBytes;
  const std::size_t padding = (kAlignment - data_offset % kAlignment) % kAlignment;
  const std::uint32_t size_32 = is_64 ? kMax32 : static_cast<std::uint32_t>(entry.size_bytes);
  put_integer(kLocalHeader);
  put_integer(is_64 ? kVersion64 : kVersionPlain);
  put_integer(entry.has_trailing_checksum ? kFlagTrailingChecksum : std::uint16_t{0});
  put_integer(kStored);
  put_integer(kMidnight);
  put_integer(kFirstDay);
  put_integer(entry.crc);
  put_integer(size_32);
  put_integer(size_32);
  put_integer(static_cast<std::uint16_t>(entry.name.size()));
  put_integer(static_cast<std::uint16_t>(extra_64 + kExtraHeaderBytes + padding));
  put(entry.name.data(), entry.name.size());
  if (is_64) {
    put_integer(kExtra64);
    put_integer(std::uint16_t{16});
    put_integer(entry.size_bytes);
    put_integer(entry.size_bytes);
  }
  put_integer(kExtraPadding);
  put_integer(static_cast<std::uint16_t>(padding));
  static constexpr char kZeros[kAlignment] = {};
  put(kZeros, padding);
}

// Returns the checksum of what it wrote.
std::uint32_t ZipWriter::put_data(const char* data, std::size_t size) {
  std::uint32_t crc = 0;
  while (size > 0 && error_ == 0) {
    const std::size_t piece = checksum_ ? std::min(size, kPieceBytes) : size;
    if (checksum_) crc = crc32(data, piece, crc);
    put(data, piece);
    data += piece;
    size -= piece;
  }
  position_ += size;
  return crc;
}

void ZipWriter::add(std::string_view name, const void* data, std::size_t size) {
  const bool in_pieces = size > kPieceBytes;
  entries_.push_back(Entry{std::string(name), size, position_, 0, in_pieces});
  Entry& entry = entries_.back();
  if (checksum_ && !in_pieces && error_ == 0) entry.crc = crc32(data, size);
  put_local_header(entry);
  if (!in_pieces) {
    put(data, size);
    return;
  }
  entry.crc = put_data(static_cast<const char*>(data), size);
  put_integer(kTrailingChecksum);
  put_integer(entry.crc);
  if (needs_64(size)) {
    put_integer(entry.size_bytes);
    put_integer(entry.size_bytes);
  } else {
    put_integer(static_cast<std::uint32_t>(size));
    put_integer(static_cast<std::uint32_t>(size));
  }
}

void ZipWriter::put_directory_entry(const Entry& entry) {
  const bool size_64 = needs_64(entry.size_bytes);
  const bool offset_64 = needs_64(entry.header_offset);
  const std::uint16_t fields_64 = static_cast<std::uint16_t>((size_64 ? 16 : 0) + (offset_64 ? 8 : 0));
  const std::uint16_t version = fields_64 != 0 ? kVersion64 : kVersionPlain;
  const std::uint32_t size_32 = size_64 ? kMax32 : static_cast<std::uint32_t>(entry.size_bytes);
  put_integer(kDirectoryEntry);
  put_integer(version);
  put_integer(version);
  put_integer(entry.has_trailing_checksum ? kFlagTrailingChecksum : std::uint16_t{0});
  put_integer(kStored);
  put_integer(kMidnight);
  put_integer(kFirstDay);
  put_integer(entry.crc);
  put_integer(size_32);
  put_integer(size_32);
  put_integer(static_cast<std::uint16_t>(entry.name.size()));
  put_integer(static_cast<std::uint16_t>(fields_64 != 0 ? kExtraHeaderBytes + fields_64 : 0));
  put_integer(std::uint16_t{0});  // comment length
  put_integer(std::uint16_t{0});  // disk number
  put_integer(std::uint16_t{0});  // internal attributes
  put_integer(std::uint32_t{0});  // external attributes
  put_integer(offset_64 ? kMax32 : static_cast<std::uint32_t>(entry.header_offset));
  put(entry.name.data(), entry.name.size());
  if (fields_64 == 0) return;
  put_integer(kExtra64);
  put_integer(fields_64);
  if (size_64) {
    put_integer(entry.size_bytes);
    put_integer(entry.size_bytes);
  }
  if (offset_64) put_integer(entry.header_offset);
}

int ZipWriter::finish() {
  const std::uint64_t directory_offset = position_;
  for (const Entry& entry : entries_) put_directory_entry(entry);
  const std::uint64_t directory_bytes = position_ - directory_offset;
  const std::uint64_t count = entries_.size();
  if (count >= kMax16 || needs_64(directory_offset) || needs_64(directory_bytes)) {
    const std::uint64_t end64_offset = position_;
    put_integer(kEnd64);
    put_integer(std::uint64_t{44});  // how long the rest of this record is
    put_integer(kVersion64);
    put_integer(kVersion64);
    put_integer(std::uint32_t{0});  // this disk
    put_integer(std::uint32_t{0});  // the directory's disk
    put_integer(count);
    put_integer(count);
    put_integer(directory_bytes);
    put_integer(directory_offset);
    put_integer(kEnd64Locator);
    put_integer(std::uint32_t{0});
    put_integer(end64_offset);
    put_integer(std::uint32_t{1});  // disks in all
  }
  const auto count_16 = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kMax16));
  put_integer(kEnd);
  put_integer(std::uint16_t{0});
  put_integer(std::uint16_t{0});
  put_integer(count_16);
  put_integer(count_16);
  put_integer(static_cast<std::uint32_t>(std::min<std::uint64_t>(directory_bytes, kMax32)));
  put_integer(static_cast<std::uint32_t>(std::min<std::uint64_t>(directory_offset, kMax32)));
  put_integer(std::uint16_t{0});  // comment length
  flush();
  return error_;
}

}  // namespace dbg::codec
