// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Two tensors of one shape as two runs of numbers, a chunk at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/tensor_blocks.h"

namespace dbg::compare {

/// Walks both tensors in row-major order. Integers of 64 bits lose what a double can't hold.
/// Threads: one thread at a time.
class NumberWalk {
 public:
  static constexpr std::size_t kChunk = 1024;

  /// Both readable and of one shape; neither opaque.
  NumberWalk(const at::Tensor& a, const at::Tensor& b);

  /// Steps to the next chunk; false past the last one.
  bool next();

  /// The row-major index of the chunk's first element.
  std::int64_t start() const noexcept { return start_; }
  std::size_t elements() const noexcept { return elements_; }
  /// Numbers of one side: two for an element when a side is complex.
  std::size_t numbers() const noexcept { return elements_ * numbers_each_; }

  const double* a() const noexcept { return a_.data(); }
  const double* b() const noexcept { return b_.data(); }
  // One number an element. The numbers themselves, of complex ones their absolute values.
  const double* size_a() const noexcept { return numbers_each_ == 1 ? a_.data() : size_a_.data(); }
  const double* size_b() const noexcept { return numbers_each_ == 1 ? b_.data() : size_b_.data(); }
  const double* magnitude_a() const noexcept { return size_a_.data(); }  ///< |a|
  const double* distance() const noexcept { return distance_.data(); }   ///< |a-b|

 private:
  base::TensorBlocks blocks_a_;
  base::TensorBlocks blocks_b_;
  at::ScalarType dtype_a_;
  at::ScalarType dtype_b_;
  std::size_t numbers_each_;
  std::size_t in_block_ = 0;
  std::size_t block_elements_ = 0;
  std::int64_t start_ = 0;
  std::size_t elements_ = 0;
  std::array<double, kChunk> a_;
  std::array<double, kChunk> b_;
  std::array<double, kChunk> size_a_;
  std::array<double, kChunk> size_b_;
  std::array<double, kChunk> distance_;
};

}  // namespace dbg::compare
