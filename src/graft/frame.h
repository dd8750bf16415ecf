// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The header of dbg's own wire, and what all ranks conclude from those of one gather. Pure: no group, no clock.
//
// Version 2, 2560 bytes, numbers little-endian:
//      0  magic "DBGGRAFT"
//      8  u32 version
//     12  u8 state (0 nothing, 1 value), u8 direction (0 b2t, 1 t2b), i8 dtype (c10::ScalarType), u8 zero
//     16  i64 step
//     24  u64 occurrence: how many calls of this name this rank made before in this step
//     32  u64 hash of the name (FNV-1a)
//     40  i64 bytes of the tensor: elements times their size
//     48  i64 bytes of the info that goes before it: a pickle of {"extras", "place"}; 0: none
//     56  i64 the longest payload that this rank takes
//     64  u32 CRC-32 of the tensor's bytes, u32 number of dimensions (at most 64)
//     72  i64 sizes [64]
//    584  u16 length, then the name's first 438 bytes
//   1024  u16 length, then the first 510 bytes of why there is nothing
//   1536  u16 length, then at most 1022 bytes of tags: of each its key, 0x1f, its value, 0x1e
// On a receiver the state says whether it has a tensor to put a value into; dtype, sizes and bytes are then zero. A
// call that failed on a sender is one with nothing to give, and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dbg/grafter.h"

namespace dbg::graft {

inline constexpr std::uint32_t kFrameVersion = 2;
inline constexpr std::size_t kHeaderBytes = 2560;
inline constexpr std::size_t kMostDims = 64;

/// Keys and values as text.
using FrameTags = std::vector<std::pair<std::string, std::string>>;

struct FrameHeader {
  bool has_value = false;
  GraftDirection direction = GraftDirection::b2t;
  std::int8_t dtype = 0;
  std::int64_t step = 0;
  std::uint64_t occurrence = 0;
  std::uint64_t name_hash = 0;
  std::int64_t tensor_bytes = 0;
  std::int64_t info_bytes = 0;
  std::int64_t max_bytes = 0;
  std::uint32_t digest = 0;
  std::vector<std::int64_t> sizes = {};
  std::string name = {};
  std::string reason = {};
  FrameTags tags = {};
};

std::uint64_t hash_of_name(const std::string& name) noexcept;

/// Those tags of a dump by which its call is told from others of its name: not the name, not the rank's place (`rank`,
/// and what ends in `_rank`), and `recompute_status` only where something is recomputed. Of a long key or value its
/// beginning and a hash.
FrameTags tags_of_call(const Tags& tags);

/// Writes `kHeaderBytes` to `out`; tags that find no room are left out.
/// Throws: LogicError when there are more than `kMostDims` sizes.
void write_header(const FrameHeader& header, std::byte* out);

/// Reads `kHeaderBytes`. Bytes from outside: a header is returned only when its numbers fit each other (sizes are not
/// negative, their product times the dtype's width is the tensor's bytes, lengths lie within the header).
/// Throws: IoError that says what does not.
FrameHeader read_header(const std::byte* in);

/// What all ranks do after a gather; each comes to the answer for itself from the same headers.
enum class Agreement {
  meet,   ///< all are at the same call
  skip,   ///< they are not, and this rank goes on: all at once in one step, those behind when the steps differ
  again,  ///< this rank is ahead by a step or more: it waits for the others by gathering once more
};

/// The sides are at the same call when step, name, direction and occurrence are equal, and so is the value of each tag
/// that all of them have.
struct Decision {
  Agreement agreement = Agreement::meet;
  std::string note;  ///< where which rank is, unless all met
};

Decision decide(const std::vector<FrameHeader>& headers, int rank);

/// The longest payload that every rank takes.
std::int64_t common_limit(const std::vector<FrameHeader>& headers);

}  // namespace dbg::graft
