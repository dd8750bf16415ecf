// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Keeps a fault that comes back at every call from filling the log.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/formatted.h"

namespace dbg::graft {

/// Which lines are worth saying: of each kind the first, and then those whose number is a power of two.
/// Threads: safe to call from any thread.
class RepeatedLines {
 public:
  /// Counts one of a kind; returns its number when it is to be said, else 0. Kinds beyond the first 256 count as one.
  std::uint64_t hit(const std::string& kind) {
    const std::lock_guard lock(mutex_);
    const auto known = counts_.find(kind);
    const std::uint64_t number =
        known != counts_.end() ? ++known->second : ++counts_[counts_.size() < kMostKinds ? kind : std::string()];
    return (number & (number - 1)) == 0 ? number : 0;
  }

 private:
  static constexpr std::size_t kMostKinds = 256;

  std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;  // under mutex_
};

/// What stands at the end of such a line.
inline std::string times_text(std::uint64_t number) {
  return number <= 1 ? std::string() : formatted(" ({} times by now)", number);
}

}  // namespace dbg::graft
