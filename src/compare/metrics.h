// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The measures of two tensors of one shape that dbg::diff does not take: a few walks over both, in bounded memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "compare/tolerance.h"
#include "dbg/compare.h"
#include "dbg/tensor_info.h"

namespace dbg::compare {

struct TensorMetrics {
  double cosine = 1;
  double outside_fraction = 0;
  std::optional<Percentiles> a_percentiles;
  std::optional<Percentiles> b_percentiles;
  std::optional<Percentiles> difference_percentiles;
  std::optional<CastDifference> cast;
  // Of the finite values of both; NaN where there are none.
  double low = 0;
  double high = 0;
};

/// Measures `a` against `b`, whose difference is `difference`, which must be a compared one. Elements that are no
/// numbers have no measures but equality. Throws: IoError when a tensor that is read in pieces can't be read to its
/// end.
TensorMetrics measure(const at::Tensor& a, const at::Tensor& b, const TensorDiff& difference);

/// All that a tolerance can ask for.
Measures measures_of(const TensorDiff& difference, const TensorMetrics& metrics) noexcept;

}  // namespace dbg::compare
