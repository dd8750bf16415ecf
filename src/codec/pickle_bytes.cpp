// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of one pickle within a source.
#include "codec/pickle_bytes.h"

#include <algorithm>

#include "base/formatted.h"

namespace dbg::codec {

PickleBytes::PickleBytes(const ByteSource& source, std::uint64_t base, std::uint64_t limit, std::uint64_t max_bytes)
    : source_(&source), base_(base), limit_(limit) {
  if (base > source.size()) source.fail(base, "a pickle should begin here, past the end");
  limit_ = std::min(limit_, source.size() - base);
  if (source.memory() != nullptr) {
    memory_ = reinterpret_cast<const char*>(source.memory()) + base;
    loaded_ = limit_;
  } else if (limit_ > max_bytes) {
    limit_ = max_bytes;
    limit_is_ours_ = true;
  }
}

void PickleBytes::require(std::uint64_t offset, std::uint64_t count) {
  if (offset > limit_ || count > limit_ - offset) {
    fail(offset,
         limit_is_ours_
             ? formatted("the pickle is longer than the limit of {} bytes; if the file is no attack, read "
                         "it with a larger ReadLimits::max_pickle_bytes",
                         limit_)
             : formatted("the pickle needs {} bytes here and {} are left", count, limit_ - std::min(offset, limit_)));
  }
  if (offset + count <= loaded_) return;
  constexpr std::uint64_t first_block_bytes = 64 * 1024;
  const std::uint64_t wanted = std::min(limit_, std::max({offset + count, 2 * loaded_, first_block_bytes}));
  buffer_.resize(wanted);
  source_->read(base_ + loaded_, buffer_.data() + loaded_, wanted - loaded_);
  loaded_ = wanted;
}

}  // namespace dbg::codec
