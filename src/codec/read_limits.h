// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How much a reader may spend on bytes from outside, and how it says what it left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "dbg/read_limits.h"

namespace dbg::codec {

/// What one read may cost, and what of it may wait.
struct ReadLimits : dbg::ReadLimits {
  constexpr ReadLimits() = default;
  constexpr ReadLimits(const dbg::ReadLimits& plain) : dbg::ReadLimits(plain) {}

  /// Storages in a zip file above so many bytes are read when they are walked (base/windowed_storage.h), and only then
  /// held against their checksum.
  std::uint64_t windowed_above_bytes = std::numeric_limits<std::uint64_t>::max();
};

/// An entry that was left out, since a c10::IValue can't hold it. The rest of the value is there.
struct Refusal {
  /// Where it was: `value['a'][3]`. Empty for the root.
  std::string path;
  /// What it was: "a set", "bytes", "an object of 'numpy.ndarray'".
  std::string reason;
};

/// So many refusals are listed; the last one then says how many more there were.
inline constexpr std::size_t max_listed_refusals = 1000;

/// A tensor of more dimensions is refused.
inline constexpr std::size_t kMostDimensions = 64;

}  // namespace dbg::codec
