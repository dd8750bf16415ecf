// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The control messages that go in-band before each payload: a header of fixed size, and what it announces.
//
// Wire format, version 1, little-endian. A header is 128 bytes:
//    0  8  magic "dbgwcast"
//    8  4  version of this format, 1
//   12  4  kind: 1 a bucket, 2 the commit record
//   16  8  generation of the sync
//   24  8  bucket: its index; in a commit record how many there were
//   32  8  length of the payload in bytes; 0 in a commit record
//   40  8  info_bytes: length of the message with the weights' infos that follows the header; 0: there is none
//   48  8  first_weight: number of the first weight that begins in the bucket
//   56  8  num_weights that begin in the bucket; in a commit record of the whole stream
//   64  8  plan_hash, over all weights and cuts so far
//   72  8  payload_digest; in a commit record over all payloads' digests
//   80  4  flags: 1 the last message of the stream, which the commit record is; 2 the payloads have digests
//   84  4  zero
//   88  8  model version, signed
//   96  8  total_bytes of all weights so far, without what alignment adds
//  104  8  weights_digest; in a commit record over all weights' digests, else 0
//  112  4  info_digest: CRC-32 of the infos that follow
//  116  8  zero
//  124  4  CRC-32 of the 124 bytes before
// Infos, one after the other: 4 bytes length of the name, the name, 2 bytes dtype (its number in torch's ScalarType),
// 2 bytes number of dimensions, 8 bytes each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/weight_source.h"

namespace dbg::broadcast {

inline constexpr std::size_t kHeaderBytes = 128;
inline constexpr std::uint32_t kWireVersion = 1;

enum class MessageKind : std::uint32_t { bucket = 1, commit = 2 };

struct Header {
  MessageKind kind = MessageKind::bucket;
  std::uint64_t generation = 0;
  std::uint64_t bucket = 0;
  std::uint64_t length = 0;
  std::uint64_t info_bytes = 0;
  std::uint64_t first_weight = 0;
  std::uint64_t num_weights = 0;
  std::uint64_t plan_hash = 0;
  std::uint64_t payload_digest = 0;
  bool is_last = false;
  bool has_digests = false;
  std::int64_t model_version = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t weights_digest = 0;
  std::uint32_t info_digest = 0;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

HeaderBytes encode(const Header& header) noexcept;

/// What a received header must not exceed, and which sync it has to be of.
struct HeaderLimits {
  std::uint64_t generation = 0;
  std::uint64_t bucket_bytes = 0;
};

/// The most that infos of one bucket may take: far more than a bucket of the smallest weights needs.
std::uint64_t most_info_bytes(std::uint64_t bucket_bytes) noexcept;

/// Reads a header from the wire.
/// Throws: CommError (handshake_mismatch) that says which field is wrong, with both values: another format, another
/// sync's generation, a length beyond the bucket, a commit record with bytes, what this version knows nothing of,
/// damage.
Header decode_header(const HeaderBytes& bytes, const HeaderLimits& limits);

std::vector<std::byte> encode_infos(const std::vector<WeightInfo>& infos);

/// Throws: CommError (handshake_mismatch) for bytes that are no infos, or not `num_weights` of them.
std::vector<WeightInfo> decode_infos(const std::byte* data, std::size_t size, std::uint64_t num_weights);

/// The infos that a message brought, once their digest is right.
/// Throws: CommError (handshake_mismatch) for damage, and as decode_infos.
std::vector<WeightInfo> infos_of(const Header& header, const std::vector<std::byte>& infos);

/// The digest of a payload or a weight: its CRC-32, followed on from `previous`.
std::uint64_t digest_of(const void* data, std::size_t size, std::uint64_t previous = 0) noexcept;

/// What differs between the header the root sent and what this rank holds of the same bucket, in words with both
/// values; nullopt: nothing.
std::optional<std::string> difference_of(const Header& root, const Header& own);

}  // namespace dbg::broadcast
