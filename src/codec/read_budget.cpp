// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Words for spent limits.
#include "codec/read_budget.h"

#include <algorithm>

#include "base/formatted.h"

namespace dbg::codec {

// A storage stands in the input once, and can be wanted conjugated, negated and both besides.
ReadBudget::ReadBudget(const ReadLimits& read_limits, std::uint64_t input_bytes)
    : limits(read_limits),
      items(limits.max_items),
      table_places(limits.max_items),
      tensor_bytes(std::min(limits.max_tensor_bytes, 4 * input_bytes)),
      checked_bytes((std::uint64_t{1} << 30) + 16 * input_bytes),
      depth(limits.max_depth) {}

std::string ReadBudget::items_spent() const {
  return formatted(
      "the limit on items is reached: {} opcodes and entries; if the file is no attack, read it with a larger "
      "ReadLimits::max_items",
      limits.max_items);
}

std::string ReadBudget::depth_spent(std::string_view what) const {
  return formatted(
      "{} are nested deeper than the limit of {}; if the file is no attack, read it with a larger "
      "ReadLimits::max_depth",
      what, limits.max_depth);
}

std::string ReadBudget::tensor_bytes_spent(std::string_view what, std::uint64_t wanted) const {
  return formatted(
      "{} of {} bytes is above the limit ({} left of {} or four times the input); if the file is no attack, read it "
      "with "
      "a larger ReadLimits::max_tensor_bytes",
      what, wanted, tensor_bytes, limits.max_tensor_bytes);
}

std::string ReadBudget::checked_bytes_spent() const {
  return "the same bytes would be gone through again and again (more than 1 GiB and 16 times the input in all): "
         "written to "
         "keep its reader busy";
}

}  // namespace dbg::codec
