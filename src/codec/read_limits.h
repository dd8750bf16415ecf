// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How much a reader may spend on bytes from outside, and how it says what it left out.
#pragma once

#include <cstddef>
#include <string>

#include "dbg/read_limits.h"

namespace dbg::codec {

using dbg::ReadLimits;

/// An entry that was left out, since a c10::IValue can't hold it. The rest of the value is there.
struct Refusal {
  /// Where it was: `value['a'][3]`. Empty for the root.
  std::string path;
  /// What it was: "a set", "bytes", "an object of 'numpy.ndarray'".
  std::string reason;
};

/// So many refusals are listed; the last one then says how many more there were.
inline constexpr std::size_t max_listed_refusals = 1000;

}  // namespace dbg::codec
