// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One of a group's two process groups, with what a call on it needs. Knows neither how it was made nor how it ends.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace dbg::distributed {

/// Whether a group can still work, and why it can't. The first cause stays.
/// Threads: safe to call from any thread.
class BrokenState {
 public:
  /// Returns whether this is the first cause.
  bool set(std::string cause) {
    const std::lock_guard lock(mutex_);
    if (is_set_.load(std::memory_order_relaxed)) return false;
    cause_ = std::move(cause);
    is_set_.store(true, std::memory_order_release);
    return true;
  }

  /// For whoever set the cause, once more is known of it.
  void refine(std::string cause) {
    const std::lock_guard lock(mutex_);
    cause_ = std::move(cause);
  }

  bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }

  /// The first cause; nullopt while all is well.
  std::optional<std::string> cause() const {
    if (!is_set()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::string cause_;
};

/// A process group as the operations see it: the device half or the cpu half of a GroupCoordinator, or an adopted one.
///
/// Who makes it fills the fields once, before the first call; they do not change then.
/// Threads: what changes (`broken` and the counts) is safe to use from any thread. The order of collectives is the
/// caller's to keep: each rank makes the same calls in the same order.
struct GroupHalf {
  c10::intrusive_ptr<c10d::Backend> backend;  ///< null once the group is closed
  std::string name;                           ///< unique: `tp@0_1.g0`
  std::string label;                          ///< `tp:cpu`
  std::vector<int> ranks;                     ///< global ranks; the position is the rank in the group
  int rank_in_group = 0;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of one operation
  pid_t owner_pid = ::getpid();

  /// Where members leave each other notes (who arrived, who failed why), under keys of this half's own; null where the
  /// peers know nothing of such notes (groups with Python, adopted ones). Operations use it only when things go wrong,
  /// and for `monitored_barrier`.
  c10::intrusive_ptr<c10d::Store> store;

  BrokenState broken;
  std::atomic<std::uint64_t> sequence{0};  ///< operations begun
  std::atomic<std::uint64_t> barriers{0};  ///< monitored barriers begun
  std::atomic<bool> is_recorded{false};    ///< see RecorderGate

  GroupHalf() = default;
  GroupHalf(const GroupHalf&) = delete;
  GroupHalf& operator=(const GroupHalf&) = delete;

  int size() const noexcept { return static_cast<int>(ranks.size()); }
  int global_rank() const { return ranks.at(static_cast<std::size_t>(rank_in_group)); }
};

}  // namespace dbg::distributed
