// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How ranks' values become one.
#pragma once

namespace dbg {

/// What a reduction does with the ranks' elements.
///
/// `average` is the sum divided by the number of ranks, for floating-point and complex elements only. The `bit_` ones
/// take integers and bool. For bool, `sum` and `max` mean "any", `product` and `min` mean "all".
enum class ReduceOp { sum, average, product, min, max, bit_and, bit_or, bit_xor };

}  // namespace dbg
