// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How much a reader may spend on bytes from outside.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dbg {

/// What one read may cost. Every length is also held against the bytes that are there, so that a small file costs
/// little whatever it says; these bound what a large one can do. An error that a limit causes names it: raise it for a
/// file that you trust.
struct ReadLimits {
  /// Bytes of one pickle that are copied out of a file. (A message that is in memory already is not copied.)
  std::uint64_t max_pickle_bytes = std::uint64_t{1} << 30;
  /// Containers in containers, streams in streams.
  std::size_t max_depth = 256;
  /// Opcodes that make something, and entries of the value, counted as often as they are reached: a list of ten
  /// references to a list of ten references ... ends here. An opcode costs up to 80 bytes of memory. As many places may
  /// be spent on tables of dicts whose keys collide, of 56 bytes each.
  std::size_t max_items = std::size_t{1} << 24;
  /// Bytes of all storages together (which are also held against the size of the input); and of one tensor, were it
  /// made contiguous: an expanded one costs the reader nothing, but whoever copies it.
  std::uint64_t max_tensor_bytes = std::uint64_t{64} << 30;
};

}  // namespace dbg
