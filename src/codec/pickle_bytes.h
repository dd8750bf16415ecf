// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of one pickle within a source, and failing at a place in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "codec/byte_source.h"

namespace dbg::codec {

/// The bytes of one pickle within a source: copied out of a file as far as they were asked for, so that a pickle of
/// unknown length in front of gigabytes costs only its own; viewed in place in memory.
class PickleBytes {
 public:
  /// The pickle begins at `base` and ends before `base + limit`; a limit above `max_bytes` only counts to there.
  PickleBytes(const ByteSource& source, std::uint64_t base, std::uint64_t limit, std::uint64_t max_bytes);

  /// Makes sure that [offset, offset + count) can be viewed.
  /// Throws: IoError when the pickle ends before.
  void require(std::uint64_t offset, std::uint64_t count);

  /// Bytes that were required before.
  std::string_view view(std::uint64_t offset, std::uint64_t count) const {
    return {(memory_ != nullptr ? memory_ : buffer_.data()) + offset, static_cast<std::size_t>(count)};
  }

  std::uint64_t limit() const noexcept { return limit_; }

  /// Throws the IoError that names `offset` (from the beginning of the pickle) as a place in the source.
  [[noreturn]] void fail(std::uint64_t offset, std::string_view cause) const { source_->fail(base_ + offset, cause); }

 private:
  const ByteSource* source_;
  std::uint64_t base_;
  std::uint64_t limit_;
  bool limit_is_ours_ = false;
  const char* memory_ = nullptr;
  std::uint64_t loaded_ = 0;
  std::string buffer_;
};

}  // namespace dbg::codec
