// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// FNV-1a of 64 bits: equal on all machines, whatever they were built with. No protection against those who search for
// collisions.
#pragma once

#include <cstdint>
#include <string_view>

namespace dbg::base {

inline constexpr std::uint64_t kFnvStart = 14695981039346656037ULL;
inline constexpr std::uint64_t kFnvFactor = 1099511628211ULL;

/// The hash of what `hash` is of, followed by `bytes`.
constexpr std::uint64_t fnv_hash(std::string_view bytes, std::uint64_t hash = kFnvStart) noexcept {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvFactor;
  return hash;
}

}  // namespace dbg::base
