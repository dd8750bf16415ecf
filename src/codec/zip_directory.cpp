// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reading the directory of a zip archive.
#include "codec/zip_directory.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/formatted.h"
#include "codec/crc32.h"

namespace dbg::codec {
namespace {

// Sizes of the fixed parts, and signatures, of the zip format (APPNOTE 6.3).
constexpr std::uint64_t end_bytes = 22;
constexpr std::uint64_t max_comment_bytes = 0xffff;
constexpr std::uint64_t locator64_bytes = 20;
constexpr std::uint64_t end64_bytes = 56;
constexpr std::size_t record_bytes = 46;
constexpr std::uint64_t header_bytes = 30;
constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t locator64_signature = 0x07064b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t record_signature = 0x02014b50;
constexpr std::uint32_t header_signature = 0x04034b50;
constexpr std::uint16_t sizes64_id = 1;
constexpr std::uint64_t in_other_field32 = 0xffffffff;

/// The directory is read in one piece. A sparse file of any size costs its maker nothing.
constexpr std::uint64_t max_records_bytes = std::uint64_t{1} << 30;

/// The little-endian number of `size` bytes at `offset` of `bytes`, which is long enough.
std::uint64_t number(std::string_view bytes, std::size_t offset, int size) {
  std::uint64_t value = 0;
  for (int i = size; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + static_cast<std::size_t>(i)]);
  }
  return value;
}

std::string read_bytes(const ByteSource& source, std::uint64_t offset, std::uint64_t size) {
  std::string bytes;
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc&) {
    source.fail(offset, formatted("no memory for {} bytes of a zip archive's directory", size));
  }
  source.read(offset, bytes.data(), bytes.size());
  return bytes;
}

/// What the end of the archive says about its directory.
struct End {
  std::uint64_t entries = 0;
  std::uint64_t records_bytes = 0;
  std::uint64_t records_offset = 0;
  /// Where the directory has to end at the latest.
  std::uint64_t offset = 0;
};

void check_disks(const ByteSource& source, std::uint64_t offset, std::uint64_t disk, std::uint64_t records_disk,
                 std::uint64_t entries_here, std::uint64_t entries) {
  if (disk != 0 || records_disk != 0 || entries_here != entries) source.fail(offset, "a zip archive of several disks");
}

End read_end64(const ByteSource& source, std::uint64_t offset) {
  const std::string bytes = read_bytes(source, offset, end64_bytes);
  if (number(bytes, 0, 4) != end64_signature) source.fail(offset, "no zip64 end of directory where one is announced");
  check_disks(source, offset, number(bytes, 16, 4), number(bytes, 20, 4), number(bytes, 24, 8), number(bytes, 32, 8));
  return {number(bytes, 32, 8), number(bytes, 40, 8), number(bytes, 48, 8), offset};
}

/// The end in the last `tail_bytes` of the source; nullopt when it is not there.
std::optional<End> find_end(const ByteSource& source, std::uint64_t tail_bytes) {
  const std::uint64_t tail_offset = source.size() - tail_bytes;
  const std::string tail = read_bytes(source, tail_offset, tail_bytes);
  for (std::size_t start = tail.size() - end_bytes + 1; start-- > 0;) {
    if (number(tail, start, 4) != end_signature) continue;
    if (number(tail, start + 20, 2) != tail.size() - start - end_bytes) continue;  // not its comment: a chance match
    const std::string_view bytes = std::string_view(tail).substr(start);
    const std::uint64_t offset = tail_offset + start;
    const bool may_be_64 = offset >= locator64_bytes + end64_bytes;
    if (may_be_64) {
      const std::string locator = read_bytes(source, offset - locator64_bytes, locator64_bytes);
      if (number(locator, 0, 4) == locator64_signature) {
        const std::uint64_t end64_offset = number(locator, 8, 8);
        if (end64_offset > offset - locator64_bytes - end64_bytes) {
          source.fail(offset - locator64_bytes, "the zip64 end of directory leaves the archive");
        }
        return read_end64(source, end64_offset);
      }
    }
    check_disks(source, offset, number(bytes, 4, 2), number(bytes, 6, 2), number(bytes, 8, 2), number(bytes, 10, 2));
    return End{number(bytes, 10, 2), number(bytes, 12, 4), number(bytes, 16, 4), offset};
  }
  return std::nullopt;
}

End read_end(const ByteSource& source) {
  if (source.size() < end_bytes) source.fail(0, "too short for a zip archive");
  // Nobody's records have a comment behind the end; looking for one would read a small record twice.
  for (const std::uint64_t tail_bytes : {end_bytes, std::min(source.size(), end_bytes + max_comment_bytes)}) {
    if (const std::optional<End> end = find_end(source, tail_bytes)) return *end;
  }
  source.fail(source.size(), "the zip archive has no end of directory: it is cut, or no archive");
}

}  // namespace

ZipDirectory::ZipDirectory(const ByteSource& source, std::size_t max_entries) : source_(source) {
  const End end = read_end(source);
  if (end.records_offset > end.offset || end.records_bytes > end.offset - end.records_offset) {
    source.fail(end.offset, formatted("a zip directory of {} bytes at {}, which leaves the archive", end.records_bytes,
                                      end.records_offset));
  }
  if (end.entries > max_entries || end.entries > end.records_bytes / record_bytes) {
    source.fail(end.offset,
                formatted("{} zip entries, where {} bytes or the limit of {} allow fewer; if the file is no "
                          "attack, read it with a larger ReadLimits::max_items",
                          end.entries, end.records_bytes, max_entries));
  }
  // A record may carry 3 x 64 KiB of names, extras and comments; ours need far less.
  constexpr std::uint64_t max_bytes_per_entry = 4096;
  if (end.records_bytes > end.entries * max_bytes_per_entry)
    source.fail(end.offset, "a zip directory that is mostly filler");
  if (end.records_bytes > max_records_bytes) {
    source.fail(end.offset, formatted("a zip directory of {} bytes, where {} are read at most: torch's is a few "
                                      "megabytes for a hundred thousand tensors",
                                      end.records_bytes, max_records_bytes));
  }
  records_offset_ = end.records_offset;
  const std::string records = read_bytes(source, end.records_offset, end.records_bytes);
  std::size_t position = 0;
  for (std::uint64_t i = 0; i < end.entries; ++i) read_record(records, position);
  find_folder();
}

void ZipDirectory::read_record(std::string_view records, std::size_t& position) {
  const std::uint64_t place = records_offset_ + position;
  const std::string_view fixed = records.substr(position);
  if (fixed.size() < record_bytes || number(fixed, 0, 4) != record_signature) {
    source_.fail(place, "a zip directory record that is none");
  }
  const std::size_t name_bytes = number(fixed, 28, 2);
  const std::size_t extra_bytes = number(fixed, 30, 2);
  const std::size_t comment_bytes = number(fixed, 32, 2);
  const std::size_t total = record_bytes + name_bytes + extra_bytes + comment_bytes;
  if (fixed.size() < total) source_.fail(place, "a zip directory record that leaves the directory");

  Record record;
  record.place = place;
  record.flags = static_cast<std::uint16_t>(number(fixed, 8, 2));
  record.checksum = static_cast<std::uint32_t>(number(fixed, 16, 4));
  record.method = static_cast<std::uint16_t>(number(fixed, 10, 2));
  std::uint64_t stored_size = number(fixed, 20, 4);
  record.size = number(fixed, 24, 4);
  record.header_offset = number(fixed, 42, 4);
  std::string name(fixed.substr(record_bytes, name_bytes));

  // Fields that are too large for 32 bits stand in an extra, in this order, and only those.
  std::string_view extra = fixed.substr(record_bytes + name_bytes, extra_bytes);
  while (extra.size() >= 4) {
    const auto id = number(extra, 0, 2);
    const std::size_t size = number(extra, 2, 2);
    if (extra.size() - 4 < size) break;
    if (id == sizes64_id) {
      std::string_view fields = extra.substr(4, size);
      for (std::uint64_t* field : {&record.size, &stored_size, &record.header_offset}) {
        if (*field != in_other_field32 || fields.size() < 8) continue;
        *field = number(fields, 0, 8);
        fields.remove_prefix(8);
      }
      break;
    }
    extra.remove_prefix(4 + size);
  }
  if (record.method == 0 && stored_size != record.size) {
    source_.fail(place, formatted("zip entry '{}' has two sizes", printable(name)));
  }
  const auto [inserted, is_new] = records_.emplace(std::move(name), record);
  if (!is_new) source_.fail(place, formatted("zip entry '{}' stands there twice", printable(inserted->first)));
  position += total;
}

void ZipDirectory::find_folder() {
  constexpr std::string_view pickle_name = "data.pkl";
  bool found = false;
  for (const auto& [name, record] : records_) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos || name.compare(slash + 1, std::string::npos, pickle_name) != 0) continue;
    if (found) source_.fail(record.place, "two folders with a data.pkl");
    found = true;
    folder_ = name.substr(0, slash + 1);
  }
  if (!found) source_.fail(records_offset_, "a zip archive without a data.pkl: torch.save did not write it");
}

ZipEntry ZipDirectory::entry(const std::string& name) const {
  const std::string full = folder_ + name;
  const auto found = records_.find(full);
  if (found == records_.end()) {
    source_.fail(records_offset_, formatted("the archive has no entry '{}'", printable(full)));
  }
  const Record& record = found->second;
  const auto fail = [&](std::uint64_t offset, std::string_view cause) {
    source_.fail(offset, formatted("zip entry '{}' {}", printable(full), cause));
  };
  if (record.method != 0) {
    fail(record.place, formatted("is compressed (method {}); torch stores plainly", record.method));
  }
  if ((record.flags & 1U) != 0) fail(record.place, "is encrypted");
  if (record.header_offset > records_offset_ || records_offset_ - record.header_offset < header_bytes) {
    fail(record.place, "has its header outside the archive");
  }
  const std::string header = read_bytes(source_, record.header_offset, header_bytes);
  if (number(header, 0, 4) != header_signature) fail(record.header_offset, "has no header where it should be");
  const std::uint64_t name_bytes = number(header, 26, 2);
  const std::uint64_t skipped = header_bytes + name_bytes + number(header, 28, 2);
  const std::uint64_t left = records_offset_ - record.header_offset;
  if (skipped > left || record.size > left - skipped) {
    fail(record.header_offset,
         formatted("has {} bytes where {} are left before the directory", record.size, left - std::min(skipped, left)));
  }
  if (read_bytes(source_, record.header_offset + header_bytes, name_bytes) != full) {
    fail(record.header_offset, "has another name in its header");
  }
  return {record.header_offset + skipped, record.size, record.checksum};
}

void ZipDirectory::check(const std::string& name, const ZipEntry& entry, const void* data) const {
  if (entry.checksum == 0 || crc32(data, entry.size) == entry.checksum) return;
  source_.fail(entry.offset, formatted("the {} bytes of zip entry '{}' do not fit their checksum: they were damaged",
                                       entry.size, printable(folder_ + name)));
}

}  // namespace dbg::codec
