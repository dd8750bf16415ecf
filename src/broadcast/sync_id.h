// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which sync it is, and where its keys lie in the broadcaster's store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/formatted.h"

namespace dbg::broadcast {

/// A sync's number, for people and headers, and the nonce of the meeting that began it, for keys: numbers count per
/// set of workers and come again when the set changes, or when what they are counted by is lost.
struct SyncId {
  SyncId() = default;
  SyncId(std::int64_t number, std::string drawn = {}) : generation(number), nonce(std::move(drawn)) {}  // NOLINT

  std::int64_t generation = -1;
  std::string nonce{};

  /// The key of that name, of this sync alone.
  std::string key(std::string_view name) const {
    return formatted("s/{}{}{}/{}", generation, nonce.empty() ? "" : "-", nonce, name);
  }
  friend bool operator==(const SyncId& a, const SyncId& b) noexcept {
    return a.generation == b.generation && a.nonce == b.nonce;
  }
};

}  // namespace dbg::broadcast
