// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes a group: checks the lists, meets the members, then builds both halves under names that only this group has.
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/fence.h"
#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/backends.h"
#include "distributed/collective_call.h"
#include "distributed/failure_notes.h"
#include "distributed/group_builder.h"
#include "distributed/labels.h"
#include "distributed/nccl_backend.h"
#include "distributed/network_interfaces.h"
#include "distributed/rendezvous.h"
#include "distributed/trace_info.h"

namespace dbg {

using distributed::BuildPlan;
using distributed::OwnedHalf;

namespace {

// The list that this rank is in, or nullopt. All are checked: every rank then finds the same fault.
std::optional<std::vector<int>> own_ranks(const World& world, const std::vector<std::vector<int>>& group_ranks,
                                          const std::string& name) {
  if (group_ranks.empty()) throw ConfigError(formatted("group '{}': there is no list of ranks.", name));
  std::set<int> seen;
  std::optional<std::vector<int>> own;
  for (const std::vector<int>& ranks : group_ranks) {
    if (ranks.empty()) throw ConfigError(formatted("group '{}': one of its lists of ranks is empty.", name));
    for (const int rank : ranks) {
      if (rank < 0 || rank >= world.world_size()) {
        throw ConfigError(formatted("group '{}': rank {} in [{}] is not one of the world's, which are 0 to {}.", name,
                                    rank, fmt::join(ranks, ", "), world.world_size() - 1));
      }
      if (!seen.insert(rank).second) {
        throw ConfigError(
            formatted("group '{}': rank {} is listed twice; each rank is in one list at most, once.", name, rank));
      }
      if (rank == world.rank()) own = ranks;
    }
  }
  return own;
}

}  // namespace

std::shared_ptr<GroupCoordinator> GroupCoordinator::create(const World& world,
                                                           const std::vector<std::vector<int>>& group_ranks,
                                                           const GroupOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  auto impl = std::make_unique<Impl>();
  impl->name = distributed::checked_group_name(options.group_name);
  const auto ranks = own_ranks(world, group_ranks, impl->name);
  if (!ranks) return nullptr;
  distributed::require_own_process(world, "create", impl->name);
  impl->ranks = *ranks;
  impl->rank_in_group = static_cast<int>(std::find(ranks->begin(), ranks->end(), world.rank()) - ranks->begin());
  impl->local_rank = world.local_rank();
  impl->timeout = distributed::timeout_or(options.timeout, world.timeout(), impl->name);
  impl->world = world;

  const std::string device_kind = distributed::resolve_backend(options.device_backend);
  const std::string cpu_kind = distributed::resolve_backend(options.cpu_backend);
  if (distributed::is_nccl(cpu_kind))
    throw ConfigError(formatted("group '{}': nccl can't be the cpu backend.", impl->name));

  if (options.device_options && options.device_backend == "gloo") {
    throw ConfigError(formatted(
        "group '{}': device_options are given, and the device backend is gloo, which takes none.", impl->name));
  }
  // Here, so that the others do not wait for this rank's backend after the handshake.
  if (distributed::is_nccl(device_kind)) distributed::require_nccl(device_kind);

  distributed::HandshakeRequest request;
  request.name = impl->name;
  request.ranks = impl->ranks;
  request.rank_in_group = impl->rank_in_group;
  request.timeout = impl->timeout;
  request.settings = {
      {"device backend", distributed::is_nccl(device_kind) ? distributed::nccl_class_of(device_kind) : device_kind},
      {"cpu backend", cpu_kind},
      {"check", options.check ? "on" : "off"},
      {"world size", std::to_string(world.world_size())}};
  request.binds_to_loopback =
      (device_kind == "gloo" || cpu_kind == "gloo") && distributed::binds_to_loopback(world.interface());
  const distributed::HandshakeResult agreed = distributed::shake_hands(world.store(), world.key_prefix(), request);
  impl->common_keys = agreed.keys;

  BuildPlan plan{*impl, options, agreed.generation, began + impl->timeout};
  // What was built goes, keys included, when a later step fails.
  try {
    impl->cpu = distributed::build_half(plan, "cpu", cpu_kind);
    impl->device = distributed::build_half(plan, "device", device_kind);
  } catch (...) {
    GroupCoordinator(std::move(impl)).close(std::chrono::milliseconds(0));
    throw;
  }
  return std::shared_ptr<GroupCoordinator>(new GroupCoordinator(std::move(impl)));
}

namespace distributed {
namespace {

// The notes stay for those that are still at it; the last that gives up deletes them.
void end_notes(OwnedHalf& half) {
  static_cast<void>(base::run_fenced([&] {
    const StoreDeadline in_time(std::chrono::steady_clock::now() + kNotesLimit, StoreDeadline::Missed::is_forgiven);
    delete_notes(*half.notes, half.state.size(), count_as_closing(*half.notes));
  }));
}

void tell_the_others(OwnedHalf& half, const FailureNote& note) {
  if (!leave_failure_note(half.state, note)) end_notes(half);
}

// The members had answered a moment ago: one that has neither made its backend nor says why not was lost meanwhile.
void name_the_silent(OwnedHalf& half, CommFailure& failure) {
  if (leave_failure_note(half.state, {failure.kind, "create", 0, failure.cause})) return;
  if (const auto notes = collect_notes_of_making(half.state, kNotesLimit)) {
    failure.peers = global_ranks(half.state, notes->silent);
    if (!failure.peers.empty()) {
      failure.kind = CommErrorKind::peer_lost;
      failure.cause +=
          formatted("; no word from rank{} {}", failure.peers.size() == 1 ? "" : "s", fmt::join(failure.peers, ", "));
    }
    for (int rank = 0; rank < half.state.size(); ++rank) {
      const auto& note = notes->by_rank[static_cast<std::size_t>(rank)];
      // What is no failure of its own is the consequence of another's.
      if (!note || note->kind != CommErrorKind::broken) continue;
      const int global = half.state.ranks[static_cast<std::size_t>(rank)];
      failure.peers.push_back(global);
      failure.cause += formatted("; rank {} says: {}", global, note->cause);
    }
  }
  end_notes(half);
}

std::shared_ptr<GroupHalf> make_checker(const GroupHalf& half, const BackendRequest& request, bool with_labels) {
  auto checker = std::make_shared<GroupHalf>();
  checker->name = half.name + ".check";
  checker->label = half.label;
  checker->ranks = half.ranks;
  checker->rank_in_group = half.rank_in_group;
  checker->timeout = half.timeout;
  checker->backend = make_helper(request, half.timeout, with_labels, "check");
  return checker;
}

}  // namespace

std::chrono::milliseconds timeout_or(std::chrono::milliseconds asked, std::chrono::milliseconds otherwise,
                                     const std::string& group_name) {
  if (asked < std::chrono::milliseconds::zero()) {
    throw ConfigError(
        formatted("group '{}': the timeout is {} ms; it is above 0, or 0 for the world's.", group_name, asked.count()));
  }
  return asked == std::chrono::milliseconds::zero() ? otherwise : asked;
}

void require_own_process(const World& world, const std::string& operation, const std::string& group_name) {
  const int own = ::getpid();
  if (world.pid() == own) return;
  CommFailure failure;
  failure.kind = CommErrorKind::forked;
  failure.label = group_name;
  failure.rank = world.rank();
  failure.operation = operation;
  failure.cause = formatted("process {} is a child of {}, which opened the world's store", own, world.pid());
  failure.advice = "open a World in the child, or start workers by exec";
  throw CommError(std::move(failure));
}

std::shared_ptr<OwnedHalf> build_half(const BuildPlan& plan, const std::string& half, const std::string& kind) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  GroupCoordinator::Impl& impl = plan.impl;
  auto owned = std::make_shared<OwnedHalf>();
  owned->half = half;
  owned->kind = kind;
  owned->has_label = plan.options.with_labels;
  GroupHalf& state = owned->state;
  const std::string label = label_of(impl.name, half);
  const std::string name = unique_group_name(label, impl.ranks, plan.generation);
  // Traces show both; without labels the name says no more than which ranks.
  state.label = owned->has_label ? label : "";
  state.name = owned->has_label ? name : unique_group_name("", impl.ranks, plan.generation);
  state.ranks = impl.ranks;
  state.rank_in_group = impl.rank_in_group;
  state.timeout = impl.timeout;
  state.world_size = impl.world->world_size();

  const std::string prefix = impl.world->key_prefix() + '/' + name;
  const auto keys = c10::make_intrusive<TrackedStore>(impl.world->store(), prefix);
  const auto notes = c10::make_intrusive<TrackedStore>(impl.world->store(), prefix + "/notes");
  owned->keys = {keys, notes};
  owned->notes = notes;
  state.store = notes;

  BackendRequest request;
  request.store = keys;
  request.rank = impl.rank_in_group;
  request.size = static_cast<int>(impl.ranks.size());
  request.global_ranks = impl.ranks;
  request.group_name = state.name;
  request.group_desc = state.label;
  request.half = half;
  request.local_rank = impl.world->local_rank();
  request.interface = impl.world->interface();
  if (half == "device") request.options = plan.options.device_options;
  // All members were there a moment ago, so what is left of the time is enough; never so little that it can't be done.
  request.timeout = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(plan.deadline - began),
                             std::chrono::milliseconds(400));
  keys->setTimeout(request.timeout);
  keys->set_deadline(began + request.timeout);

  try {
    MadeHalf made = make_half(kind, request, impl.timeout, plan.options.with_labels);
    owned->shown.group = std::move(made.group);
    state.backend = std::move(made.backend);
    if (plan.options.check) state.checker = make_checker(state, request, plan.options.with_labels);
    leave_made_note(*notes, state.rank_in_group);
    keys->set_deadline(std::nullopt);
    owned->shown.registered_name = register_group(name, impl.global_rank(), owned->shown.group);
    if (owned->has_label) owned->listing = list_in_traces(state, kind);
  } catch (const Error&) {
    tell_the_others(*owned, {CommErrorKind::broken, "create", 0, base::describe_current_exception()});
    keys->delete_written_keys();
    throw;
  } catch (...) {
    CommFailure failure;
    failure.cause = formatted("the {} backend could not be made: {}", kind, base::describe_current_exception());
    // Asked before the keys: deleting them may find out as well, and late.
    const auto fault = keys->fault();
    keys->delete_written_keys();
    failure.kind = Clock::now() - began >= request.timeout ? CommErrorKind::timeout : CommErrorKind::peer_lost;
    if (!fault) name_the_silent(*owned, failure);
    failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
    failure.advice = "See what became of the other members, and whether they reach this one's network interface";
    if (fault) {
      failure.kind = CommErrorKind::store_down;
      failure.advice = kAdviceStoreSilent;
    }
    failure.group = state.name;
    failure.label = state.label;
    failure.ranks = impl.ranks;
    failure.rank = impl.global_rank();
    failure.operation = "create";
    throw CommError(std::move(failure));
  }
  return owned;
}

}  // namespace distributed
}  // namespace dbg
