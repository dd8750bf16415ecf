// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a group says of itself, and how it ends.
#include "dbg/group_coordinator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/left_behind.h"
#include "base/log.h"
#include "distributed/failure_notes.h"
#include "distributed/group_impl.h"
#include "distributed/labels.h"
#include "distributed/part_name.h"

namespace dbg {

using distributed::OwnedHalf;

namespace {

using distributed::kPart;

using Clock = std::chrono::steady_clock;

// For taking away a closed group's keys.
constexpr std::chrono::milliseconds kForKeys{500};
// For ending a backend, however little is left of the time: longer than it takes where nobody is inside.
constexpr std::chrono::milliseconds kForBackend{100};

// A forked child has none of the backends' threads: what would wait for them is never destroyed there.
void leak_in_forked_child(OwnedHalf& half) noexcept {
  static_cast<void>(half.state.backend.release());
  static_cast<void>(half.state.wrapper_helper.release());
  static_cast<void>(new std::shared_ptr<distributed::GroupHalf>(std::move(half.state.checker)));
  static_cast<void>(half.shown.group.release());
  for (auto& keys : half.keys) static_cast<void>(keys.release());
  static_cast<void>(half.state.store.release());
  static_cast<void>(half.notes.release());
}

// Tells the other members that this one closes. nullopt: the half has no notes, or the store does not answer.
std::optional<std::int64_t> count_as_closing(OwnedHalf& half) {
  std::optional<std::int64_t> count;
  if (!half.notes) return count;
  const auto cause = base::run_fenced([&] { count = distributed::count_as_closing(*half.notes); });
  if (cause) base::log(LogLevel::debug, kPart, "{}: closed without the store: {}", half.state.name, *cause);
  return count;
}

// Best effort: whoever leaves first would otherwise cut off those that are still inside their last operation. By the
// store and not by a collective: members that do not close yet would take that for their own next one, and gloo ends
// the process when the sizes of two do not fit.
void wait_for_others(OwnedHalf& half, Clock::time_point deadline) {
  const auto cause = base::run_fenced([&] {
    distributed::PollPause pause;
    while (!distributed::have_all_closed(*half.notes, half.state.size())) {
      if (pause.wait(deadline)) continue;
      base::log(LogLevel::debug, kPart, "{}: the other members did not close in time", half.state.name);
      return;
    }
  });
  if (cause) base::log(LogLevel::debug, kPart, "{}: closed without the store: {}", half.state.name, *cause);
}

// Whether the store took it.
bool delete_keys(OwnedHalf& half, std::optional<std::int64_t> count) {
  const auto cause = base::run_fenced([&] {
    if (half.notes && count) distributed::delete_notes(*half.notes, half.state.size(), *count);
  });
  if (cause) return false;
  return std::all_of(half.keys.begin(), half.keys.end(),
                     [&](const auto& keys) { return keys == half.notes || keys->delete_written_keys(); });
}

}  // namespace

namespace distributed {

std::string register_group(const std::string& name, int rank, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  for (const std::string& candidate : {name, formatted("{}/rank{}", name, rank)}) {
    if (!base::run_fenced([&] { c10d::register_process_group(candidate, group); })) return candidate;
  }
  base::log(LogLevel::warning, kPart, "{} is in torch's registry already: torch.distributed finds the earlier one",
            name);
  return {};
}

void release_half(OwnedHalf& half, std::chrono::steady_clock::time_point deadline) noexcept {
  half.listing.reset();
  OwnedHalf::Shown shown = half.take_shown();
  GroupHalf::Backends backends = half.state.take_backends();
  // The registry may hold the group; it is asked to let go first.
  if (!shown.registered_name.empty()) {
    static_cast<void>(base::run_fenced([&] { c10d::unregister_process_group(shown.registered_name); }));
  }
  if (half.is_adopted) return;
  // A backend waits in its destructor for what its threads are at, which may be another thread's collective.
  const auto cause = base::run_fenced([&] {
    const bool is_over =
        base::finishes_by(deadline, [group = std::move(shown.group), backends = std::move(backends)]() mutable {
          static_cast<void>(base::run_fenced([&] {
            group.reset();
            backends.backend.reset();
          }));
        });
    if (!is_over) {
      base::log(LogLevel::warning, kPart, "{} is closed while an operation still runs in it; its threads end with that",
                half.state.name);
    }
  });
  if (cause) base::log(LogLevel::warning, kPart, "{} was not closed in order: {}", half.state.name, *cause);
}

}  // namespace distributed

GroupCoordinator::GroupCoordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GroupCoordinator::~GroupCoordinator() {
  close(std::chrono::seconds(1));
}

void GroupCoordinator::close(std::chrono::milliseconds bound) noexcept {
  if (impl_->is_closed.exchange(true)) return;
  const bool is_one_group = impl_->device == impl_->cpu;
  if (impl_->owner_pid != ::getpid()) {
    if (impl_->device) leak_in_forked_child(*impl_->device);
    if (impl_->cpu && !is_one_group) leak_in_forked_child(*impl_->cpu);
    static_cast<void>(impl_->common_keys.release());
    return;
  }
  const auto deadline = Clock::now() + bound;
  OwnedHalf* const device = impl_->device.get();
  OwnedHalf* const cpu = is_one_group ? nullptr : impl_->cpu.get();
  OwnedHalf* const waiting = cpu != nullptr ? cpu : device;
  std::optional<std::int64_t> device_count;
  std::optional<std::int64_t> cpu_count;
  {
    const distributed::StoreDeadline in_time(deadline, distributed::StoreDeadline::Missed::is_forgiven);
    if (device != nullptr) device_count = count_as_closing(*device);
    if (cpu != nullptr && (device_count || !device || !device->notes)) cpu_count = count_as_closing(*cpu);
    const bool has_peers =
        waiting != nullptr && (waiting == cpu ? cpu_count : device_count) && waiting->state.size() > 1;
    if (has_peers && bound > std::chrono::milliseconds::zero() && !waiting->state.broken.is_set()) {
      wait_for_others(*waiting, deadline);
    }
  }
  for (OwnedHalf* half : {device, cpu}) {
    if (half == nullptr) continue;
    half->state.broken.set("it was closed");
    distributed::release_half(*half, std::max(deadline, Clock::now() + kForBackend));
  }
  // Last, since a backend may still ask its store. A store that is gone takes its keys along.
  const distributed::StoreDeadline in_time(Clock::now() + kForKeys, distributed::StoreDeadline::Missed::is_forgiven);
  if (device != nullptr && !delete_keys(*device, device_count)) return;
  if (cpu != nullptr && !delete_keys(*cpu, cpu_count)) return;
  if (impl_->common_keys) impl_->common_keys->delete_written_keys();
}

bool GroupCoordinator::is_closed() const noexcept {
  return impl_->is_closed.load();
}

const std::string& GroupCoordinator::group_name() const noexcept {
  return impl_->name;
}
const std::vector<int>& GroupCoordinator::ranks() const noexcept {
  return impl_->ranks;
}
int GroupCoordinator::world_size() const noexcept {
  return static_cast<int>(impl_->ranks.size());
}
int GroupCoordinator::rank() const noexcept {
  return impl_->global_rank();
}
int GroupCoordinator::rank_in_group() const noexcept {
  return impl_->rank_in_group;
}
int GroupCoordinator::local_rank() const noexcept {
  return impl_->local_rank;
}
int GroupCoordinator::first_rank() const noexcept {
  return impl_->ranks.front();
}
int GroupCoordinator::last_rank() const noexcept {
  return impl_->ranks.back();
}
int GroupCoordinator::next_rank() const noexcept {
  return impl_->ranks[static_cast<std::size_t>((rank_in_group() + 1) % world_size())];
}
int GroupCoordinator::prev_rank() const noexcept {
  return impl_->ranks[static_cast<std::size_t>((rank_in_group() + world_size() - 1) % world_size())];
}
bool GroupCoordinator::is_first_rank() const noexcept {
  return rank_in_group() == 0;
}
bool GroupCoordinator::is_last_rank() const noexcept {
  return rank_in_group() == world_size() - 1;
}
std::chrono::milliseconds GroupCoordinator::timeout() const noexcept {
  return impl_->timeout;
}

std::vector<std::string> GroupCoordinator::aliases() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->aliases;
}

void GroupCoordinator::add_alias(const std::string& name) {
  std::string checked = distributed::checked_group_name(name);
  const std::lock_guard lock(impl_->mutex);
  auto& all = impl_->aliases;
  if (checked == impl_->name || std::find(all.begin(), all.end(), checked) != all.end()) return;
  all.push_back(std::move(checked));
}

c10::intrusive_ptr<c10d::ProcessGroup> GroupCoordinator::device_group() const {
  return impl_->device->shown_now().group;
}
c10::intrusive_ptr<c10d::ProcessGroup> GroupCoordinator::cpu_group() const {
  return impl_->cpu->shown_now().group;
}
std::string GroupCoordinator::device_registered_name() const {
  return impl_->device->shown_now().registered_name;
}
std::string GroupCoordinator::cpu_registered_name() const {
  return impl_->cpu->shown_now().registered_name;
}
std::string GroupCoordinator::device_backend() const {
  return impl_->device->kind;
}

std::string GroupCoordinator::describe() const {
  std::string names = impl_->name;
  for (const std::string& alias : aliases()) names += '=' + alias;
  std::string state = is_closed() ? "closed" : "ready";
  if (!is_closed()) {
    for (const auto& half : {impl_->device, impl_->cpu}) {
      if (const auto cause = half->state.broken.cause()) state = formatted("broken ({}: {})", half->half, *cause);
    }
  }
  return formatted("group {} ranks [{}], this is rank {} ({} of {}), device {}{} {}, cpu {}{} {}, timeout {} ms, {}",
                   names, fmt::join(impl_->ranks, ", "), rank(), rank_in_group(), world_size(), impl_->device->kind,
                   impl_->device->is_adopted ? " (adopted)" : "", impl_->device->state.name, impl_->cpu->kind,
                   impl_->cpu->is_adopted ? " (adopted)" : "", impl_->cpu->state.name, impl_->timeout.count(), state);
}

}  // namespace dbg
