// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Bounded reading of bytes that nobody vouches for: a file or a piece of memory, with errors that name place and cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dbg::codec {

/// Returns `text` cut to `max_bytes` and with everything escaped that would harm a log line (control bytes, quotes,
/// bytes that are not ASCII), so that text from a hostile file can stand in a message.
std::string printable(std::string_view text, std::size_t max_bytes = 80);

/// A run of bytes that is read by offset.
///
/// Files are read by pread and not mapped: a mapped file that someone truncates kills the process with SIGBUS, while a
/// short read is an error like any other. A read goes straight to its destination, so it costs the one copy that
/// copying out of a mapping would.
/// Threads: reading is safe from any thread.
class ByteSource {
 public:
  /// Opens the regular file `path`; `kind` ("record", "safetensors file") goes into messages.
  /// Throws: IoError with the errno when it can't be opened or is no regular file. Never waits (on a FIFO, say).
  static ByteSource file(std::string kind, std::string path);

  /// Reads from `size` bytes at `data`, which must outlive the source.
  static ByteSource memory(std::string kind, const void* data, std::size_t size);

  ByteSource(ByteSource&& other) noexcept;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  ByteSource& operator=(ByteSource&&) = delete;
  ~ByteSource();

  std::uint64_t size() const noexcept { return size_; }
  /// Where the bytes lie, when they lie in memory; nullptr for a file.
  const unsigned char* memory() const noexcept { return memory_; }

  /// Copies the `count` bytes at `offset` to `to`.
  /// Throws: IoError when they are not all there.
  void read(std::uint64_t offset, void* to, std::size_t count) const;

  /// Throws the IoError "kind 'path', byte offset: cause".
  [[noreturn]] void fail(std::uint64_t offset, std::string_view cause) const;

 private:
  ByteSource(std::string label, int descriptor, const unsigned char* memory, std::uint64_t size);

  std::string label_;
  int descriptor_ = -1;
  const unsigned char* memory_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace dbg::codec
