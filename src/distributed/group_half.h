// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One of a group's two process groups, with what a call on it needs. Knows neither how it was made nor how it ends.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
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
/// Who makes it fills the fields once, before the first call; they do not change then, but that closing takes the
/// backends away.
/// Threads: what changes (`broken`, the counts, the backends by `backends` and `take_backends`) is safe to use from any
/// thread. The order of collectives is the caller's to keep: each rank makes the same calls in the same order.
struct GroupHalf {
  c10::intrusive_ptr<c10d::Backend> backend;  ///< null once the group is closed
  std::string name;                           ///< unique: `tp:cpu@0_1.g0`
  std::string label;                          ///< `tp:cpu`
  std::vector<int> ranks;                     ///< global ranks; the position is the rank in the group
  int rank_in_group = 0;
  int world_size = 0;                                           ///< of the world; 0: not known (adopted groups)
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of one operation
  pid_t owner_pid = ::getpid();

  /// Where members leave each other notes (who arrived, who failed why), under keys of this half's own; null where the
  /// peers know nothing of such notes (groups with Python, adopted ones). Operations use it only when things go wrong,
  /// and for `monitored_barrier`.
  c10::intrusive_ptr<c10d::Store> store;

  /// A gloo group of the same members, on which they compare what they are about to do before each collective; null
  /// where nothing is compared.
  std::shared_ptr<GroupHalf> checker;
  /// Where `backend` is torch's comparing wrapper (as Python peers have it): its helper, by whose timeout it waits
  /// inside each call.
  c10::intrusive_ptr<c10d::Backend> wrapper_helper;

  BrokenState broken;
  std::atomic<std::uint64_t> sequence{0};  ///< operations begun
  std::atomic<std::uint64_t> barriers{0};  ///< monitored barriers begun
  std::atomic<bool> is_recorded{false};    ///< see RecorderGate

  /// What goes when the group is closed.
  struct Backends {
    c10::intrusive_ptr<c10d::Backend> backend;
    std::shared_ptr<GroupHalf> checker;
    c10::intrusive_ptr<c10d::Backend> wrapper_helper;
  };
  /// As they are now. An operation asks once: another thread may close the group meanwhile.
  Backends backends() const {
    const std::lock_guard lock(backends_mutex_);
    return {backend, checker, wrapper_helper};
  }
  /// Leaves none.
  Backends take_backends() {
    const std::lock_guard lock(backends_mutex_);
    return {std::move(backend), std::move(checker), std::move(wrapper_helper)};
  }

  GroupHalf() = default;
  GroupHalf(const GroupHalf&) = delete;
  GroupHalf& operator=(const GroupHalf&) = delete;

  int size() const noexcept { return static_cast<int>(ranks.size()); }
  int global_rank() const { return ranks.at(static_cast<std::size_t>(rank_in_group)); }

 private:
  mutable std::mutex backends_mutex_;
};

}  // namespace dbg::distributed
