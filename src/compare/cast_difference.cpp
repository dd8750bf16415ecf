// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Casts two tensors block by block.
#include "compare/cast_difference.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/tensor_blocks.h"
#include "compare/number_walk.h"
#include "compare/tolerance.h"

namespace dbg::compare {
namespace {

at::Tensor cast_block(const base::TensorBlocks& blocks, at::ScalarType from, at::ScalarType to) {
  // from_blob wants a pointer that may be written through; nothing writes.
  auto* data = const_cast<std::byte*>(blocks.data());
  return at::from_blob(data, {blocks.elements()}, at::TensorOptions(from)).to(to);
}

}  // namespace

std::optional<CastDifference> cast_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType dtype_a = a.scalar_type();
  const at::ScalarType dtype_b = b.scalar_type();
  const bool is_real = base::number_kind(dtype_a) == base::NumberKind::real;
  const bool is_same_kind = base::number_kind(dtype_a) == base::number_kind(dtype_b);
  if (dtype_a == dtype_b || !is_same_kind || (!is_real && base::number_kind(dtype_a) != base::NumberKind::complex)) {
    return std::nullopt;
  }
  const c10::AutoGradMode no_grad(false);
  const at::ScalarType coarser = coarser_of(dtype_a, dtype_b);
  CastDifference result;
  result.dtype = base::dtype_name(coarser);
  double squares = 0;
  double squared_differences = 0;
  base::TensorBlocks blocks_a(a, base::kBlockElements);
  base::TensorBlocks blocks_b(b, base::kBlockElements);
  while (blocks_a.next() && blocks_b.next()) {
    NumberWalk walk(cast_block(blocks_a, dtype_a, coarser), cast_block(blocks_b, dtype_b, coarser));
    while (walk.next()) {
      const std::size_t parts = walk.numbers() / walk.elements();
      for (std::size_t i = 0; i < walk.elements(); ++i) {
        bool is_equal = true;
        for (std::size_t part = i * parts; part < (i + 1) * parts; ++part) {
          const double x = walk.a()[part];
          const double y = walk.b()[part];
          is_equal = is_equal && (x == y || (x != x && y != y));
          if (x == x && !std::isinf(x)) squares += x * x;
          if (y == y && !std::isinf(y)) squares += y * y;
        }
        if (is_equal) continue;
        ++result.differing;
        const double distance = walk.distance()[i];
        // A NaN or an infinity on one side only: no tolerance admits it.
        result.max_abs =
            std::isfinite(distance) ? std::max(result.max_abs, distance) : std::numeric_limits<double>::infinity();
        squared_differences += distance * distance;
      }
    }
  }
  if (result.differing > 0) {
    result.rel_diff = std::isfinite(result.max_abs) && squares > 0 ? squared_differences / squares
                                                                   : std::numeric_limits<double>::infinity();
  }
  return result;
}

}  // namespace dbg::compare
