// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Values that are no tensors: equal or not, and how a line shows them.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace dbg::compare {

/// Whether two leaves are equal; NaN is equal to NaN, 1 to 1.0, a tensor to nothing but a tensor.
bool are_equal(const c10::IValue& a, const c10::IValue& b);

/// `'text'`, `3`, `None`, `a tensor [2, 3]`; cut to a bounded length.
std::string value_text(const c10::IValue& value);

}  // namespace dbg::compare
