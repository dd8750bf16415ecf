// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a GroupCoordinator holds, and how its makers put it together.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "dbg/group_coordinator.h"
#include "distributed/group_half.h"
#include "distributed/tracked_store.h"

namespace dbg {
namespace distributed {

/// One of the two halves, with all that has to go when it is closed. In this order: a backend before its store.
struct OwnedHalf {
  std::string half;  ///< `device` or `cpu`
  std::string kind;  ///< `gloo`, `nccl`, a registered name
  bool is_adopted = false;
  bool has_label = true;
  c10::intrusive_ptr<TrackedStore> notes;              ///< what `state.store` is; null where peers know no notes
  std::vector<c10::intrusive_ptr<TrackedStore>> keys;  ///< whose written keys are deleted at the end
  std::shared_ptr<void> listing;                       ///< in the traces of torch's profiler

  /// What callers are given. Gone when the half is closed, which may happen while another thread asks.
  struct Shown {
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    std::string registered_name;  ///< in torch's registry; empty: not there
  };
  Shown shown;  ///< for who makes the half; later by `shown_now` and `take_shown`
  Shown shown_now() const {
    const std::lock_guard lock(mutex);
    return shown;
  }
  Shown take_shown() {
    const std::lock_guard lock(mutex);
    return std::exchange(shown, Shown());
  }

  GroupHalf state;           ///< what operations get
  mutable std::mutex mutex;  // over `shown`, and none is taken within it
};

/// Puts the group into torch's registry under its name, or, when another rank of this process has that, under
/// `NAME/rank<R>`. Returns the name taken.
std::string register_group(const std::string& name, int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// Drops the half's references by `deadline`; what takes longer (a collective that still waits) goes on by itself.
void release_half(OwnedHalf& half, std::chrono::steady_clock::time_point deadline) noexcept;

}  // namespace distributed

struct GroupCoordinator::Impl {
  std::string name;
  std::vector<int> ranks;
  int rank_in_group = 0;
  int local_rank = 0;
  std::chrono::milliseconds timeout{0};
  pid_t owner_pid = ::getpid();
  std::optional<World> world;  ///< keeps the store

  mutable std::mutex mutex;
  std::vector<std::string> aliases;  // under mutex
  std::atomic<bool> is_closed{false};

  c10::intrusive_ptr<distributed::TrackedStore> common_keys;  ///< the leader's word of the handshake; may be null
  std::shared_ptr<distributed::OwnedHalf> cpu;
  std::shared_ptr<distributed::OwnedHalf> device;  ///< the same object as `cpu` where one group is both

  int global_rank() const { return ranks[static_cast<std::size_t>(rank_in_group)]; }
};

}  // namespace dbg
