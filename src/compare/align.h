// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Brings two tensors of one meaning into one shape, where dims or leading 1s say how.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "dbg/dims.h"

namespace dbg::compare {

struct Aligned {
  at::Tensor a;
  at::Tensor b;
  std::string note;                 ///< what was done; empty: nothing
  std::vector<std::string> labels;  ///< one a dimension of `a`; empty where dims says nothing
};

/// Aligns `b` with `a`.
///
/// With dims on both sides and equal names (`s` and `t` are one): dimensions `1` are dropped, `b` is permuted to `a`'s
/// order, and where one side has `(a*b)` and the other `a` and `b`, these are flattened. Then, if the shapes still
/// differ by leading dimensions of 1 only, those are dropped. What can't be aligned stays as it is.
Aligned align(const at::Tensor& a, const std::optional<Dims>& dims_a, const at::Tensor& b,
              const std::optional<Dims>& dims_b);

}  // namespace dbg::compare
