// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Puts tensors together from bytes and numbers that nobody vouches for.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dbg::codec {

/// Where a tensor's elements lie in its storage, in elements.
struct StridedPlaces {
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
};

/// Why no tensor can lie so in a storage of `storage_bytes`; nullopt when it can. Overlapping elements (expanded
/// tensors, windows) are fine, negative strides are not: torch has none.
std::optional<std::string> problem_of(const StridedPlaces& places, c10::ScalarType dtype, std::uint64_t storage_bytes,
                                      std::uint64_t max_tensor_bytes);

/// The tensor over `storage`; call only where there is no problem.
at::Tensor make_strided(c10::Storage storage, c10::ScalarType dtype, StridedPlaces places);

/// The layout that Python calls `name` ("torch.sparse_csr"); nullopt for the dense and unknown ones.
std::optional<at::Layout> sparse_layout_called(std::string_view name);

/// What Python calls a sparse layout; empty for the others.
std::string_view sparse_layout_name(at::Layout layout);

/// A sparse tensor of its parts: indices and values for COO, compressed indices, plain indices and values for the
/// others. The indices are checked against `sizes`: torch's kernels trust them.
/// Throws: c10::Error when the parts don't make such a tensor.
at::Tensor make_sparse(at::Layout layout, const std::vector<at::Tensor>& parts, const std::vector<std::int64_t>& sizes,
                       bool is_coalesced);

}  // namespace dbg::codec
