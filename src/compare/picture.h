// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a page shows of a failed pair: where it differs, how its values lie, and what the corner holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "dbg/compare.h"

namespace dbg::compare {

/// Draws two readable tensors of one shape, in one walk over both. `low` and `high` bound the histograms; `labels` has
/// a name for each dimension, or is empty. nullptr for elements that are no numbers, and where there are none.
std::shared_ptr<const TensorPicture> draw(const at::Tensor& a, const at::Tensor& b, double low, double high,
                                          const std::vector<std::string>& labels);

}  // namespace dbg::compare
