// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The tensor of most tests: two equal numbers.
#pragma once

#include <ATen/ops/full.h>

namespace dbg::test {

inline at::Tensor filled(double value) {
  return at::full({2}, value, at::kFloat);
}

}  // namespace dbg::test
