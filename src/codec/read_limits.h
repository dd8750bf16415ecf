// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How much a reader may spend on bytes from outside, and how it says what it left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace dbg::codec {

/// What one read may cost. Every length is also held against the bytes that are there, so that a small file costs
/// little whatever it says; these bound what a large one can do.
struct ReadLimits {
  /// Bytes of one pickle that are copied out of a file. (A message that is in memory already is not copied.)
  std::uint64_t max_pickle_bytes = std::uint64_t{1} << 30;
  /// Containers in containers, streams in streams.
  std::size_t max_depth = 256;
  /// Opcodes that make something, and entries of the value, counted as often as they are reached: a list of ten
  /// references to a list of ten references ... ends here. An opcode costs up to 80 bytes of memory.
  std::size_t max_items = std::size_t{1} << 24;
  /// Bytes of all storages together (which are also held against the size of the input); and of one tensor, were it
  /// made contiguous: an expanded one costs the reader nothing, but whoever copies it.
  std::uint64_t max_tensor_bytes = std::uint64_t{64} << 30;
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

}  // namespace dbg::codec
