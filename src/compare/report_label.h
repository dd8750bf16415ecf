// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How all reports call a pair, a place and a number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/compare.h"

namespace dbg::compare {

/// `attn_out[0] layer_id=3`
std::string name_label(const PairReport& pair);
/// `step=0 rank=0,1 attn_out[0] layer_id=3`
std::string pair_label(const PairReport& pair);
/// `0,1`
std::string ranks_label(const std::vector<int>& ranks);
/// `[0, 3, 77]`
std::string coordinate_label(const std::vector<std::int64_t>& coordinate);
/// How two values differ, NaN and infinities first, with the place and both values there.
std::string difference_label(const PairReport& pair);
/// Three digits: `1.90e-08`, `0`, `inf`.
std::string number_label(double value);

/// Text of others for a terminal: control characters are written as `\x1b`.
std::string safe_text(std::string_view text);

/// What the program says at the very end: how many of what, and the exit status in words.
std::string summary_line(const CompareReport& report);

}  // namespace dbg::compare
