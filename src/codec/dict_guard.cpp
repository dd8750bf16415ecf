// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Working out how large c10::Dict's table would become.
#include "codec/dict_guard.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace dbg::codec {
namespace {

/// Whether a table of 2^bits places takes keys that want the places `wanted >> (64 - bits)` (sorted).
bool fits(const std::vector<std::size_t>& wanted, int bits) {
  const auto max_distance = static_cast<std::uint64_t>(std::max(4, bits));
  std::uint64_t next_free = 0;
  for (const std::size_t hash : wanted) {
    const std::uint64_t place = hash >> (64 - bits);
    const std::uint64_t taken = std::max(place, next_free);
    if (taken - place >= max_distance) return false;
    next_free = taken + 1;
  }
  return true;
}

}  // namespace

int least_table_bits(std::size_t keys) {
  // Half full at most.
  return std::max(2, static_cast<int>(std::bit_width(2 * keys)));
}

int table_bits(std::vector<std::size_t> hashes) {
  constexpr std::size_t golden = 11400714819323198485ULL;
  for (std::size_t& hash : hashes) hash *= golden;
  std::sort(hashes.begin(), hashes.end());
  int bits = least_table_bits(hashes.size());
  while (bits < 64 && !fits(hashes, bits)) ++bits;
  return bits;
}

}  // namespace dbg::codec
