// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Putting tensors together from untrusted parts.
#include "codec/tensor_rebuild.h"

#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/TensorImpl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/formatted.h"
#include "codec/read_limits.h"

namespace dbg::codec {
namespace {

constexpr std::array<std::pair<std::string_view, at::Layout>, 5> sparse_layouts{{
    {"torch.sparse_coo", at::Layout::Sparse},
    {"torch.sparse_csr", at::Layout::SparseCsr},
    {"torch.sparse_csc", at::Layout::SparseCsc},
    {"torch.sparse_bsr", at::Layout::SparseBsr},
    {"torch.sparse_bsc", at::Layout::SparseBsc},
}};

constexpr auto int64_max = std::numeric_limits<std::int64_t>::max();

bool multiply(std::int64_t factor, std::int64_t& product) {
  return !__builtin_mul_overflow(product, factor, &product);
}

std::string text_of(const StridedPlaces& places) {
  return formatted("sizes ({}), strides ({}), offset {}", fmt::join(places.sizes, ", "),
                   fmt::join(places.strides, ", "), places.offset);
}

}  // namespace

std::optional<std::string> problem_of(const StridedPlaces& places, c10::ScalarType dtype, std::uint64_t storage_bytes,
                                      std::uint64_t max_tensor_bytes) {
  if (places.sizes.size() != places.strides.size() || places.sizes.size() > kMostDimensions) {
    return formatted("a tensor of {} sizes and {} strides", places.sizes.size(), places.strides.size());
  }
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  if (places.offset < 0) return "a tensor with a negative offset";
  std::int64_t bytes = element_bytes;
  std::int64_t last = places.offset;
  bool is_empty = false;
  for (std::size_t i = 0; i < places.sizes.size(); ++i) {
    const std::int64_t size = places.sizes[i];
    std::int64_t reach = places.strides[i];
    if (size < 0 || reach < 0) return formatted("a tensor with a negative size or stride: {}", text_of(places));
    is_empty = is_empty || size == 0;
    // A size of 0 counts as 1, as in torch's own arithmetic.
    const std::int64_t counted = std::max<std::int64_t>(size, 1);
    if (!multiply(counted, bytes) || !multiply(counted - 1, reach) || __builtin_add_overflow(last, reach, &last)) {
      return formatted("a tensor whose size overflows: {}", text_of(places));
    }
  }
  if (is_empty) return std::nullopt;
  if (static_cast<std::uint64_t>(bytes) > max_tensor_bytes) {
    return formatted(
        "a tensor of {} bytes is above the limit of {}; if the file is no attack, read it with a larger "
        "ReadLimits::max_tensor_bytes",
        bytes, max_tensor_bytes);
  }
  if (last == int64_max || !multiply(element_bytes, ++last) || static_cast<std::uint64_t>(last) > storage_bytes) {
    return formatted("a tensor that leaves its storage of {} bytes: {} of {}", storage_bytes, text_of(places),
                     c10::toString(dtype));
  }
  return std::nullopt;
}

at::Tensor make_strided(c10::Storage storage, c10::ScalarType dtype, StridedPlaces places) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(dtype));
  const bool is_empty = std::count(places.sizes.begin(), places.sizes.end(), 0) > 0;
  // The offset of a tensor without elements may lie past its storage, which some of torch's checks dislike.
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(places.sizes, places.strides,
                                                      is_empty ? std::int64_t{0} : places.offset);
  return tensor;
}

std::optional<at::Layout> sparse_layout_called(std::string_view name) {
  for (const auto& [known, layout] : sparse_layouts) {
    if (known == name) return layout;
  }
  return std::nullopt;
}

std::string_view sparse_layout_name(at::Layout layout) {
  for (const auto& [name, known] : sparse_layouts) {
    if (known == layout) return name;
  }
  return {};
}

at::Tensor make_sparse(at::Layout layout, const std::vector<at::Tensor>& parts, const std::vector<std::int64_t>& sizes,
                       bool is_coalesced) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    TORCH_CHECK(size >= 0 && multiply(std::max<std::int64_t>(size, 1), elements), "its sizes overflow");
  }
  // The checks below go through every index; an index that is expanded out of a few bytes could keep them busy for
  // hours.
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    TORCH_CHECK(parts[i].nbytes() <= parts[i].storage().nbytes(), "its indices overlap in memory");
  }
  const at::Tensor& values = parts.back();
  const auto options = at::TensorOptions(values.scalar_type()).device(at::kCPU).layout(layout);
  if (layout == at::Layout::Sparse) {
    at::_validate_sparse_coo_tensor_args(parts[0], values, sizes, is_coalesced);
    return at::_sparse_coo_tensor_unsafe(parts[0], values, sizes, options, is_coalesced);
  }
  at::_validate_sparse_compressed_tensor_args(parts[0], parts[1], values, sizes, layout);
  return at::_sparse_compressed_tensor_unsafe(parts[0], parts[1], values, sizes, options);
}

}  // namespace dbg::codec
