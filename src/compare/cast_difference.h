// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What is left of a difference when both tensors are cast to the coarser of their dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "dbg/compare.h"

namespace dbg::compare {

/// Compares `a` and `b`, of one shape, after casting; nullopt when one of them is no real or complex number, or when
/// their dtypes are equal.
std::optional<CastDifference> cast_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace dbg::compare
