// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of a zip archive (APPNOTE.TXT 6.3.x, "stored" only).
#include "codec/zip_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/crc32.h"

namespace dbg::codec {
namespace {

constexpr std::size_t kAlignment = 64;
// Above this the checksum is taken piece by piece, each while it is still in the cache that the write reads it from,
// and stands behind the data. Where it stands depends on the size only, so that an archive's length does.
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

// A header under construction: little-endian integers in a row.
class ZipWriter::Fields {
 public:
  template <class Integer>
  Fields& add(Integer value) {
    for (std::size_t i = 0; i < sizeof value; ++i) bytes_[size_++] = static_cast<char>((value >> (8 * i)) & 0xFF);
    return *this;
  }

  const char* data() const { return bytes_.data(); }
  std::size_t size() const { return size_; }

 private:
  std::array<char, 98> bytes_;  // the longest: the three end records, 56 + 20 + 22
  std::size_t size_ = 0;
};

ZipWriter::ZipWriter(ByteSink& sink, bool checksum) : sink_(sink), checksum_(checksum) {
  entries_.reserve(8);
  names_.reserve(128);
}

std::uint16_t ZipWriter::flags_of(const Entry& entry) {
  return entry.has_trailing_checksum ? kFlagTrailingChecksum : std::uint16_t{0};
}

void ZipWriter::flush() {
  if (error_ == 0 && gathered_bytes_ > 0) error_ = sink_.write(gathered_.data(), gathered_bytes_);
  gathered_bytes_ = 0;
}

void ZipWriter::put(const void* data, std::size_t size) {
  position_ += size;
  if (error_ != 0 || size == 0) return;
  if (size > gathered_.size() - gathered_bytes_) {
    flush();
    if (size > gathered_.size()) {
      if (error_ == 0) error_ = sink_.write(data, size);
      return;
    }
  }
  std::memcpy(gathered_.data() + gathered_bytes_, data, size);
  gathered_bytes_ += size;
}

void ZipWriter::put(const Fields& fields) {
  put(fields.data(), fields.size());
}

void ZipWriter::put_local_header(const Entry& entry) {
  const bool is_64 = needs_64(entry.size_bytes);
  const std::size_t extra_64 = is_64 ? kExtraHeaderBytes + 16 : 0;
  const std::uint64_t data_offset =
      entry.header_offset + kLocalHeaderBytes + entry.name_size + extra_64 + kExtraHeaderBytes;
  const std::size_t padding = (kAlignment - data_offset % kAlignment) % kAlignment;
  const std::uint32_t size_32 = is_64 ? kMax32 : static_cast<std::uint32_t>(entry.size_bytes);
  Fields header;
  header.add(kLocalHeader).add(is_64 ? kVersion64 : kVersionPlain).add(flags_of(entry));
  header.add(kStored).add(kMidnight).add(kFirstDay);
  header.add(entry.crc).add(size_32).add(size_32);
  header.add(static_cast<std::uint16_t>(entry.name_size));
  header.add(static_cast<std::uint16_t>(extra_64 + kExtraHeaderBytes + padding));
  put(header);
  put(names_.data() + entry.name_offset, entry.name_size);
  Fields extra;
  if (is_64) extra.add(kExtra64).add(std::uint16_t{16}).add(entry.size_bytes).add(entry.size_bytes);
  extra.add(kExtraPadding).add(static_cast<std::uint16_t>(padding));
  put(extra);
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
  entries_.push_back(Entry{names_.size(), name.size(), size, position_, 0, in_pieces});
  names_.append(name);
  Entry& entry = entries_.back();
  if (checksum_ && !in_pieces && error_ == 0) entry.crc = crc32(data, size);
  put_local_header(entry);
  if (!in_pieces) {
    put(data, size);
    return;
  }
  entry.crc = put_data(static_cast<const char*>(data), size);
  Fields trailer;
  trailer.add(kTrailingChecksum).add(entry.crc);
  if (needs_64(size)) {
    trailer.add(entry.size_bytes).add(entry.size_bytes);
  } else {
    trailer.add(static_cast<std::uint32_t>(size)).add(static_cast<std::uint32_t>(size));
  }
  put(trailer);
}

void ZipWriter::put_directory_entry(const Entry& entry) {
  const bool size_64 = needs_64(entry.size_bytes);
  const bool offset_64 = needs_64(entry.header_offset);
  const auto fields_64 = static_cast<std::uint16_t>((size_64 ? 16 : 0) + (offset_64 ? 8 : 0));
  const std::uint16_t version = fields_64 != 0 ? kVersion64 : kVersionPlain;
  const std::uint32_t size_32 = size_64 ? kMax32 : static_cast<std::uint32_t>(entry.size_bytes);
  constexpr std::uint16_t kNoComment = 0, kFirstDisk = 0, kNoInternalAttributes = 0;
  constexpr std::uint32_t kNoExternalAttributes = 0;
  Fields header;
  header.add(kDirectoryEntry).add(version).add(version).add(flags_of(entry));
  header.add(kStored).add(kMidnight).add(kFirstDay);
  header.add(entry.crc).add(size_32).add(size_32);
  header.add(static_cast<std::uint16_t>(entry.name_size));
  header.add(static_cast<std::uint16_t>(fields_64 != 0 ? kExtraHeaderBytes + fields_64 : 0));
  header.add(kNoComment).add(kFirstDisk).add(kNoInternalAttributes).add(kNoExternalAttributes);
  header.add(offset_64 ? kMax32 : static_cast<std::uint32_t>(entry.header_offset));
  put(header);
  put(names_.data() + entry.name_offset, entry.name_size);
  if (fields_64 == 0) return;
  Fields extra;
  extra.add(kExtra64).add(fields_64);
  if (size_64) extra.add(entry.size_bytes).add(entry.size_bytes);
  if (offset_64) extra.add(entry.header_offset);
  put(extra);
}

int ZipWriter::finish() {
  const std::uint64_t directory_offset = position_;
  for (const Entry& entry : entries_) put_directory_entry(entry);
  const std::uint64_t directory_bytes = position_ - directory_offset;
  const std::uint64_t count = entries_.size();
  constexpr std::uint16_t kDisk16 = 0, kNoComment = 0;
  constexpr std::uint32_t kDisk32 = 0, kDisks = 1;
  Fields end;
  if (count >= kMax16 || needs_64(directory_offset) || needs_64(directory_bytes)) {
    constexpr std::uint64_t kRestBytes = 44;  // of the record, beyond this field
    end.add(kEnd64).add(kRestBytes).add(kVersion64).add(kVersion64).add(kDisk32).add(kDisk32);
    end.add(count).add(count).add(directory_bytes).add(directory_offset);
    end.add(kEnd64Locator).add(kDisk32).add(position_).add(kDisks);
  }
  const auto count_16 = static_cast<std::uint16_t>(std::min<std::uint64_t>(count, kMax16));
  end.add(kEnd).add(kDisk16).add(kDisk16).add(count_16).add(count_16);
  end.add(static_cast<std::uint32_t>(std::min<std::uint64_t>(directory_bytes, kMax32)));
  end.add(static_cast<std::uint32_t>(std::min<std::uint64_t>(directory_offset, kMax32)));
  end.add(kNoComment);
  put(end);
  flush();
  return error_;
}

}  // namespace dbg::codec
