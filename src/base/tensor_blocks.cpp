// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Cuts a tensor's shape into blocks and brings each to the host.
#include "base/tensor_blocks.h"

#include <ATen/ATen.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <sstream>

#include "base/formatted.h"

namespace dbg::base {
namespace {

constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched,
                                         c10::DispatchKey::Functionalize, c10::DispatchKey::Batched,
                                         c10::DispatchKey::Python});

std::string layout_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.layout();
  return text.str();
}

template <std::size_t kBytes>
void copy_strided(const std::byte* from, std::int64_t stride_bytes, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i) * kBytes, from + i * stride_bytes, kBytes);
  }
}

}  // namespace

bool is_wrapper(const at::Tensor& tensor) {
  return tensor.key_set().has_any(kWrappers);
}

std::int64_t reach_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  std::int64_t end = tensor.storage_offset();
  if (end < 0) return kReachesNowhere;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    std::int64_t reach = 0;
    if (tensor.stride(dim) < 0 || __builtin_mul_overflow(tensor.size(dim) - 1, tensor.stride(dim), &reach) ||
        __builtin_add_overflow(end, reach, &end)) {
      return kReachesNowhere;
    }
  }
  if (__builtin_add_overflow(end, std::int64_t{1}, &end)) return kReachesNowhere;
  const bool overflows = __builtin_mul_overflow(end, static_cast<std::int64_t>(tensor.itemsize()), &end);
  return overflows ? kReachesNowhere : end;
}

std::string why_unreadable(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (tensor.is_meta()) return "meta tensor: it has no values";
  if (is_wrapper(tensor)) return "a wrapper: its values are kept by another tensor";
  if (tensor.is_nested()) return "nested tensor: its values have no single shape";
  if (tensor.layout() != at::kStrided) return formatted("{} tensor: only strided ones are read", layout_of(tensor));
  if (tensor.is_quantized()) return "quantized tensor: its integers mean nothing without their scale";
  if (impl->has_symbolic_sizes_strides()) return "symbolic shape";
  if (tensor.numel() == 0 || tensor._is_zerotensor()) return {};
  if (!tensor.has_storage()) return "no storage: the values are kept elsewhere";
  const auto storage_bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  if (storage_bytes < reach_bytes(tensor)) {
    return formatted("storage of {} bytes, of which the tensor needs {}: freed or shrunk", storage_bytes,
                     reach_bytes(tensor));
  }
  if (tensor.const_data_ptr() == nullptr) return "no memory behind its storage";
  return {};
}

TensorBlocks::TensorBlocks(const at::Tensor& tensor, std::int64_t block_elements)
    : tensor_(tensor),
      sizes_(tensor.sizes().begin(), tensor.sizes().end()),
      strides_(tensor.strides().begin(), tensor.strides().end()),
      item_bytes_(tensor.itemsize()) {
  if (sizes_.empty()) {  // a 0-dim tensor is walked as one of one element
    sizes_ = {1};
    strides_ = {1};
  }
  done_ = tensor.numel() == 0;
  if (done_) return;
  // The last dimension is the first choice; a dimension before it is taken as long as whole rows of it fit a block.
  split_ = sizes_.size() - 1;
  while (split_ > 0 && row_elements_ * sizes_[split_] <= block_elements) {
    row_elements_ *= sizes_[split_];
    --split_;
  }
  // Blocks of even size: a last one of a few rows would cost as much as a full one.
  const std::int64_t most_rows = std::max<std::int64_t>(block_elements / row_elements_, 1);
  const std::int64_t blocks = (sizes_[split_] + most_rows - 1) / most_rows;
  rows_per_block_ = (sizes_[split_] + blocks - 1) / blocks;
  outer_.assign(split_, 0);

  windowed_ = tensor.has_storage() ? WindowedStorage::of(tensor.storage()) : nullptr;
  by_operator_ = !tensor.device().is_cpu() || tensor.is_neg() || tensor.is_conj();
  rows_are_dense_ = true;
  std::int64_t expected = 1;
  for (std::size_t dim = sizes_.size(); dim-- > split_;) {
    if (sizes_[dim] != 1 && strides_[dim] != expected) rows_are_dense_ = false;
    expected *= sizes_[dim];
  }
}

bool TensorBlocks::next() {
  if (done_) return false;
  start_ += elements_;
  std::int64_t offset = row_ * strides_[split_];
  for (std::size_t dim = 0; dim < split_; ++dim) offset += outer_[dim] * strides_[dim];
  const std::int64_t rows = std::min(rows_per_block_, sizes_[split_] - row_);
  elements_ = rows * row_elements_;
  read(offset, rows);

  row_ += rows;
  if (row_ < sizes_[split_]) return true;
  row_ = 0;
  for (std::size_t dim = split_; dim-- > 0;) {
    if (++outer_[dim] < sizes_[dim]) return true;
    outer_[dim] = 0;
  }
  done_ = true;
  return true;
}

void TensorBlocks::read(std::int64_t offset, std::int64_t rows) {
  block_sizes_.assign(sizes_.begin() + static_cast<std::ptrdiff_t>(split_), sizes_.end());
  block_sizes_.front() = rows;
  const auto block_bytes = static_cast<std::size_t>(elements_) * item_bytes_;
  if (tensor_._is_zerotensor()) {
    buffer_.assign(block_bytes, std::byte{0});
    data_ = buffer_.data();
    return;
  }
  if (windowed_ != nullptr) fetch_window(offset);
  if (by_operator_) {
    const c10::AutoGradMode no_grad(false);
    const at::IntArrayRef strides(strides_.data() + split_, sizes_.size() - split_);
    fetched_ = tensor_.as_strided(block_sizes_, strides, tensor_.storage_offset() + offset)
                   .to(at::kCPU)
                   .resolve_conj()
                   .resolve_neg()
                   .contiguous();
    data_ = static_cast<const std::byte*>(fetched_.const_data_ptr());
    return;
  }
  const auto* first =
      static_cast<const std::byte*>(tensor_.const_data_ptr()) + offset * static_cast<std::int64_t>(item_bytes_);
  if (rows_are_dense_) {
    data_ = first;
    return;
  }
  buffer_.resize(block_bytes);
  std::byte* to = buffer_.data();
  gather(first, split_, to);
  data_ = buffer_.data();
}

void TensorBlocks::fetch_window(std::int64_t offset) {
  std::int64_t last = offset;
  for (std::size_t i = 0; i < block_sizes_.size(); ++i) last += (block_sizes_[i] - 1) * strides_[split_ + i];
  const std::int64_t base = tensor_.storage_offset();
  windowed_->require(static_cast<std::uint64_t>(base + offset) * item_bytes_,
                     static_cast<std::uint64_t>(base + last + 1) * item_bytes_);
}

void TensorBlocks::gather(const std::byte* from, std::size_t dim, std::byte*& to) const {
  const std::int64_t count = block_sizes_[dim - split_];
  const std::int64_t stride = strides_[dim] * static_cast<std::int64_t>(item_bytes_);
  if (dim + 1 < sizes_.size()) {
    for (std::int64_t i = 0; i < count; ++i) gather(from + i * stride, dim + 1, to);
    return;
  }
  switch (item_bytes_) {
    case 1:
      copy_strided<1>(from, stride, count, to);
      break;
    case 2:
      copy_strided<2>(from, stride, count, to);
      break;
    case 4:
      copy_strided<4>(from, stride, count, to);
      break;
    case 8:
      copy_strided<8>(from, stride, count, to);
      break;
    case 16:
      copy_strided<16>(from, stride, count, to);
      break;
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(to + static_cast<std::size_t>(i) * item_bytes_, from + i * stride, item_bytes_);
      }
  }
  to += static_cast<std::size_t>(count) * item_bytes_;
}

std::vector<std::int64_t> coordinate_of(std::int64_t index, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> coordinate(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    coordinate[dim] = index % shape[dim];
    index /= shape[dim];
  }
  return coordinate;
}

}  // namespace dbg::base
