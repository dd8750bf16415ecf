// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What is left to spend of one read's limits, and what is said when it is spent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "codec/read_limits.h"

namespace dbg::codec {

/// What is left to spend, over all pickles of one read of `input_bytes` bytes.
struct ReadBudget {
  ReadBudget(const ReadLimits& read_limits, std::uint64_t input_bytes);

  // Causes for an IoError: the limit, what it is held against, and the way out.
  std::string items_spent() const;
  std::string depth_spent(std::string_view what) const;
  std::string tensor_bytes_spent(std::string_view what, std::uint64_t wanted) const;
  std::string checked_bytes_spent() const;

  ReadLimits limits;
  std::size_t items;
  /// Places in the tables of dicts beyond what their number of keys asks for: ordinary keys may need some. Apart from
  /// the items, so that a dict with odd keys takes nothing from the rest of the value.
  std::size_t table_places;
  std::uint64_t tensor_bytes;
  /// Bytes that may be gone through again and again: few opcodes can ask for it as often as they like.
  std::uint64_t checked_bytes;
  std::size_t depth;
};

}  // namespace dbg::codec
