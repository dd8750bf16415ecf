// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Widens two tensors chunk by chunk.
#include "compare/number_walk.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/vectorized.h"

namespace dbg::compare {
namespace {

void widen(at::ScalarType dtype, const base::TensorBlocks& blocks, std::size_t at, std::size_t elements,
           std::size_t numbers_each, double* out) {
  base::widen(dtype, blocks.data() + at * c10::elementSize(dtype), elements, out);
  if (numbers_each == base::numbers_per_element(dtype)) return;
  for (std::size_t i = elements; i-- > 0;) {
    out[2 * i] = out[i];
    out[2 * i + 1] = 0;
  }
}

}  // namespace

NumberWalk::NumberWalk(const at::Tensor& a, const at::Tensor& b)
    : blocks_a_(a, base::kBlockElements),
      blocks_b_(b, base::kBlockElements),
      dtype_a_(a.scalar_type()),
      dtype_b_(b.scalar_type()),
      numbers_each_(std::max(base::numbers_per_element(dtype_a_), base::numbers_per_element(dtype_b_))) {}

bool NumberWalk::next() {
  in_block_ += elements_;
  if (in_block_ == block_elements_) {
    if (!blocks_a_.next() || !blocks_b_.next()) return false;
    in_block_ = 0;
    block_elements_ = static_cast<std::size_t>(blocks_a_.elements());
  }
  start_ = blocks_a_.start() + static_cast<std::int64_t>(in_block_);
  elements_ = std::min(kChunk / numbers_each_, block_elements_ - in_block_);
  widen(dtype_a_, blocks_a_, in_block_, elements_, numbers_each_, a_.data());
  widen(dtype_b_, blocks_b_, in_block_, elements_, numbers_each_, b_.data());
  if (numbers_each_ == 1) {
    const auto measure = [a = a_.data(), b = b_.data(), size_a = size_a_.data(), distance = distance_.data(),
                          elements = elements_]() DBG_INLINED {
      for (std::size_t i = 0; i < elements; ++i) {
        size_a[i] = std::abs(a[i]);
        distance[i] = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);  // equal infinities too
      }
    };
    base::vectorized(measure);
    return true;
  }
  for (std::size_t i = 0; i < elements_; ++i) {
    size_a_[i] = std::hypot(a_[2 * i], a_[2 * i + 1]);
    size_b_[i] = std::hypot(b_[2 * i], b_[2 * i + 1]);
    distance_[i] = std::hypot(a_[2 * i] - b_[2 * i], a_[2 * i + 1] - b_[2 * i + 1]);
  }
  return true;
}

}  // namespace dbg::compare
