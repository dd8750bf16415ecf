// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A zip archive of uncompressed entries, written front to back: the container of `.pt` files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/byte_sink.h"

namespace dbg::codec {

/// Writes STORED entries, each starting at a multiple of 64 bytes (torch maps such files and reads in place), with
/// zip64 fields where sizes, offsets or counts ask for them.
///
/// Small pieces are gathered into one write; what is larger than the gathering buffer goes to the sink straight from
/// the caller's memory. The first error of the sink is kept and everything after it swallowed, so that a caller writes
/// on unconcerned and looks once, at the end.
///
/// Why not caffe2's PyTorchStreamWriter: it ends the process when a write fails while its destructor runs, and its
/// checksum made a 256 MiB tensor 1.9 times the cost of the plain write (this one: see tests/bench/record_bench.cpp).
///
/// Threads: one thread at a time.
class ZipWriter {
 public:
  /// Without `checksum` the entries' CRC-32 is 0: torch does not look at it, `unzip` complains.
  ZipWriter(ByteSink& sink, bool checksum);
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;

  /// Adds an entry. `name` is ASCII of at most 65,535 characters; `data` is only read until the call returns.
  void add(std::string_view name, const void* data, std::size_t size);

  /// Writes the directory. Returns 0 when all went well, else the errno of the sink's first failure.
  int finish();

 private:
  struct Entry {
    std::size_t name_offset;
    std::size_t name_size;
    std::uint64_t size_bytes;
    std::uint64_t header_offset;
    std::uint32_t crc;
    bool has_trailing_checksum;
  };
  class Fields;

  void put_local_header(const Entry& entry);
  std::uint32_t put_data(const char* data, std::size_t size);
  void put_directory_entry(const Entry& entry);
  void put(const void* data, std::size_t size);
  void flush();
  void put(const Fields& fields);
  static std::uint16_t flags_of(const Entry& entry);

  ByteSink& sink_;
  bool checksum_;
  int error_ = 0;
  std::uint64_t position_ = 0;
  // Uninitialised on purpose: a writer is short-lived and usually fills little of it.
  std::array<char, std::size_t{16} << 10> gathered_;
  std::size_t gathered_bytes_ = 0;
  std::string names_;
  std::vector<Entry> entries_;
};

}  // namespace dbg::codec
