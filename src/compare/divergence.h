// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where the target parts from the baseline: follows the error through pairs that are in the order of dumping.
#pragma once

#include "dbg/compare.h"

namespace dbg::compare {

/// An error so many times as large as any before it is a jump. Rounding grows evenly (by at most 1.7 from one dump of a
/// six-layer transformer to the next), a mistake does not (the smallest tried: 11).
inline constexpr double kJumpGrowth = 5;

/// Fills `growth` of each pair, `divergence` and `steps` from the pairs' verdicts and errors.
void follow_error(CompareReport& report);

}  // namespace dbg::compare
