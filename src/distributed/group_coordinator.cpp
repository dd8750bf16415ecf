// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a group says of itself, and how it ends.
#include "dbg/group_coordinator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/left_behind.h"
#include "base/log.h"
#include "distributed/group_impl.h"
#include "distributed/labels.h"

namespace dbg {

using distributed::OwnedHalf;

namespace {

constexpr std::string_view kPart = "GroupCoordinator";
// For taking away a closed group's keys.
constexpr std::chrono::milliseconds kForKeys{500};

// A forked child has none of the backends' threads: what would wait for them is never destroyed there.
void leak_in_forked_child(OwnedHalf& half) noexcept {
  static_cast<void>(half.state.backend.release());
  static_cast<void>(half.group.release());
  for (auto& keys : half.keys) static_cast<void>(keys.release());
  static_cast<void>(half.state.store.release());
  static_cast<void>(half.notes.release());
}

// Best effort: whoever leaves first would otherwise cut off those that are still inside their last operation. By the
// store and not by a collective: members that do not close yet would take that for their own next one, and gloo ends
// the process when the sizes of two do not fit.
void wait_for_others(OwnedHalf& half, std::chrono::milliseconds bound) {
  if (bound <= std::chrono::milliseconds::zero() || half.state.size() == 1 || !half.notes) return;
  if (half.state.broken.is_set()) return;
  const auto cause = base::run_fenced([&] {
    const auto deadline = std::chrono::steady_clock::now() + bound;
    const distributed::StoreDeadline in_time(deadline, distributed::StoreDeadline::Missed::is_forgiven);
    distributed::PollPause pause;
    half.notes->add("closing", 1);
    do {
      // Whoever saw all of them deletes it.
      const auto count = half.notes->peek("closing");
      if (!count || std::stoi(*count) >= half.state.size()) return;
    } while (pause.wait(deadline));
    base::log(LogLevel::debug, kPart, "{}: the other members did not close within {} ms", half.state.name,
              bound.count());
  });
  if (cause) base::log(LogLevel::debug, kPart, "{}: closed without the store: {}", half.state.name, *cause);
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

void release_half(OwnedHalf& half, std::chrono::milliseconds bound) noexcept {
  half.listing.reset();
  // The registry may hold the group; it is asked to let go first.
  if (!half.registered_name.empty()) {
    static_cast<void>(base::run_fenced([&] { c10d::unregister_process_group(half.registered_name); }));
    half.registered_name.clear();
  }
  if (half.is_adopted) {
    half.group.reset();
    half.state.backend.reset();
    return;
  }
  // A backend waits in its destructor for what its threads are at, which may be another thread's collective.
  const auto cause = base::run_fenced([&] {
    const bool is_over =
        base::finishes_by(std::chrono::steady_clock::now() + bound,
                          [group = std::move(half.group), backend = std::move(half.state.backend)]() mutable {
                            static_cast<void>(base::run_fenced([&] {
                              group.reset();
                              backend.reset();
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
  OwnedHalf* const device = impl_->device.get();
  OwnedHalf* const cpu = is_one_group ? nullptr : impl_->cpu.get();
  OwnedHalf* const waiting = cpu != nullptr ? cpu : device;
  if (waiting != nullptr && !waiting->is_adopted && waiting->state.backend) wait_for_others(*waiting, bound);
  const auto patience = std::max(bound, std::chrono::milliseconds(100));
  if (device != nullptr) {
    device->state.broken.set("it was closed");
    distributed::release_half(*device, patience);
  }
  if (cpu != nullptr) {
    cpu->state.broken.set("it was closed");
    distributed::release_half(*cpu, patience);
  }
  // Last, since a backend may still ask its store. A store that is gone takes its keys along.
  const distributed::StoreDeadline in_time(std::chrono::steady_clock::now() + kForKeys,
                                           distributed::StoreDeadline::Missed::is_forgiven);
  for (OwnedHalf* half : {device, cpu}) {
    if (half == nullptr) continue;
    for (const auto& keys : half->keys) {
      if (!keys->delete_written_keys()) return;
    }
  }
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
  return impl_->device->group;
}
c10::intrusive_ptr<c10d::ProcessGroup> GroupCoordinator::cpu_group() const {
  return impl_->cpu->group;
}
std::string GroupCoordinator::device_registered_name() const {
  return impl_->device->registered_name;
}
std::string GroupCoordinator::cpu_registered_name() const {
  return impl_->cpu->registered_name;
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
