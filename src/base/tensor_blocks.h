// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads any strided tensor, on any device, as a run of small host blocks in logical order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/windowed_storage.h"

namespace dbg::base {

/// Whether the tensor stands for another one (Python's subclasses, functorch's transforms): its own storage, where it
/// has one, does not hold its values.
bool is_wrapper(const at::Tensor& tensor);

/// What `reach_bytes` says of places that no storage has: sizes and strides may be anybody's.
inline constexpr std::int64_t kReachesNowhere = std::numeric_limits<std::int64_t>::max();

/// The storage bytes that a strided tensor's elements reach into, from the storage's start; 0 without elements,
/// `kReachesNowhere` where that is no number. A storage may have been shrunk under its tensors to save memory.
std::int64_t reach_bytes(const at::Tensor& tensor);

/// Why a tensor's values can't be read, or empty when they can.
std::string why_unreadable(const at::Tensor& tensor);

/// Elements of a block that keeps the cost of a step small and the memory too: 2 MiB of doubles.
inline constexpr std::int64_t kBlockElements = std::int64_t{1} << 18;

/// Walks a tensor's elements in row-major order, a block at a time.
///
/// Where the blocks begin depends on the shape and `block_elements` alone, so two tensors of one shape can be walked in
/// step. Elements of a dense CPU tensor are not copied; others pass through one block's worth of memory. No operator of
/// torch is called for a CPU tensor, unless it is a lazily negated or conjugated view.
/// Threads: one thread at a time. Keeps the tensor alive.
class TensorBlocks {
 public:
  /// `tensor` must be readable. `block_elements` >= 1.
  TensorBlocks(const at::Tensor& tensor, std::int64_t block_elements);

  /// Steps to the next block; false past the last one.
  bool next();

  /// The block's elements, dense; valid until the next step.
  const std::byte* data() const noexcept { return data_; }
  /// The row-major index of the block's first element.
  std::int64_t start() const noexcept { return start_; }
  std::int64_t elements() const noexcept { return elements_; }

 private:
  void read(std::int64_t storage_offset, std::int64_t rows);
  void fetch_window(std::int64_t storage_offset);
  void gather(const std::byte* from, std::size_t dim, std::byte*& to) const;

  at::Tensor tensor_;
  at::Tensor fetched_;  // holds what data_ points to when it came by an operator
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  std::size_t item_bytes_ = 0;
  std::size_t split_ = 0;            // blocks are ranges of this dimension, whole in those behind it
  std::int64_t rows_per_block_ = 0;  // of dimension split_
  std::int64_t row_elements_ = 1;    // elements behind dimension split_
  bool rows_are_dense_ = false;      // the dimensions from split_ on lie in memory without gaps
  bool by_operator_ = false;
  WindowedStorage* windowed_ = nullptr;  // the storage, where its bytes have to be asked for

  std::vector<std::int64_t> outer_;  // the place in the dimensions before split_
  std::int64_t row_ = 0;             // the next block's first row
  bool done_ = false;

  std::vector<std::byte> buffer_;
  std::vector<std::int64_t> block_sizes_;
  const std::byte* data_ = nullptr;
  std::int64_t start_ = 0;
  std::int64_t elements_ = 0;
};

/// The coordinate of the element with this row-major index.
std::vector<std::int64_t> coordinate_of(std::int64_t index, const std::vector<std::int64_t>& shape);

}  // namespace dbg::base
