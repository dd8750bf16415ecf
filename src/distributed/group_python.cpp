// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Meets Python ranks in one gloo group. The keys are torch.distributed's (distributed_c10d.py, 2.7 to 2.15).
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/fence.h"
#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/backends.h"
#include "distributed/group_builder.h"
#include "distributed/labels.h"
#include "distributed/trace_info.h"

namespace dbg {

using distributed::OwnedHalf;

namespace {

struct PythonNames {
  std::string group;       // as Python shows it
  std::string key_prefix;  // of the cpu backend's keys
};

// A PrefixStore puts its prefix and a slash before a key, and Python's prefixes of groups and devices end in one, too.
PythonNames names_of(const PythonGroup& group) {
  if (group.kind == PythonGroup::Kind::world) return {"0", "default_pg/0//cpu/"};
  if (group.name.empty()) throw ConfigError("join_python: a subgroup or custom group has a name; it is empty.");
  if (group.kind == PythonGroup::Kind::subgroup) {
    return {group.name, formatted("default_pg/0//{}//cpu/", group.name)};
  }
  return {group.name, formatted("{0}/{0}//cpu/", group.name)};
}

void require_sense(const World& world, const std::string& name, const std::vector<int>& ranks,
                   const GroupOptions& options) {
  if (options.device_backend != "auto" && options.device_backend != "gloo") {
    throw ConfigError(formatted("join_python '{}': the device backend is '{}'; Python is met over gloo.", name,
                                options.device_backend));
  }
  if (options.cpu_backend != "gloo") {
    throw ConfigError(
        formatted("join_python '{}': the cpu backend is '{}'; Python is met over gloo.", name, options.cpu_backend));
  }
  if (options.device_options) {
    throw ConfigError(formatted("join_python '{}': device_options are given, and gloo takes none.", name));
  }
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world.world_size()) {
      throw ConfigError(formatted("join_python '{}': rank {} in [{}] is not one of the world's, which are 0 to {}.",
                                  name, rank, fmt::join(ranks, ", "), world.world_size() - 1));
    }
    if (!seen.insert(rank).second) {
      throw ConfigError(
          formatted("join_python '{}': rank {} is listed twice in [{}].", name, rank, fmt::join(ranks, ", ")));
    }
  }
}

// Those who have not left their address, which gloo does before it waits for the others'.
std::vector<int> silent_ranks(distributed::TrackedStore& keys, const std::vector<int>& ranks) {
  std::vector<int> silent;
  static_cast<void>(base::run_fenced([&] {
    const distributed::StoreDeadline in_time(std::chrono::steady_clock::now() + std::chrono::milliseconds(400),
                                             distributed::StoreDeadline::Missed::is_forgiven);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!keys.check({formatted("0/{}", rank)})) silent.push_back(ranks[rank]);
    }
  }));
  return silent;
}

}  // namespace

std::shared_ptr<GroupCoordinator> GroupCoordinator::join_python(const World& world, const PythonGroup& group,
                                                                const GroupOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  const PythonNames names = names_of(group);
  auto impl = std::make_unique<Impl>();
  impl->name = options.group_name.empty() ? distributed::sanitised_group_name(group.name)
                                          : distributed::checked_group_name(options.group_name);
  require_sense(world, impl->name, group.ranks, options);
  impl->ranks = group.ranks;
  if (impl->ranks.empty()) {
    impl->ranks.resize(static_cast<std::size_t>(world.world_size()));
    std::iota(impl->ranks.begin(), impl->ranks.end(), 0);
  }
  const auto own = std::find(impl->ranks.begin(), impl->ranks.end(), world.rank());
  if (own == impl->ranks.end()) return nullptr;
  distributed::require_own_process(world, "join_python", impl->name);
  impl->rank_in_group = static_cast<int>(own - impl->ranks.begin());
  impl->local_rank = world.local_rank();
  impl->timeout = distributed::timeout_or(options.timeout, world.timeout(), impl->name);
  impl->world = world;

  auto half = std::make_shared<OwnedHalf>();
  half->half = "cpu";
  half->kind = "gloo";
  half->has_label = options.with_labels;
  half->state.label = distributed::label_of(impl->name, "cpu");
  half->state.name = names.group;
  half->state.ranks = impl->ranks;
  half->state.rank_in_group = impl->rank_in_group;
  half->state.timeout = impl->timeout;
  half->state.world_size = world.world_size();
  const auto keys = c10::make_intrusive<distributed::TrackedStore>(world.store(), names.key_prefix);
  keys->setTimeout(impl->timeout);
  keys->set_deadline(began + impl->timeout);
  half->keys = {keys};

  BackendRequest request;
  request.store = keys;
  request.rank = impl->rank_in_group;
  request.size = static_cast<int>(impl->ranks.size());
  request.global_ranks = impl->ranks;
  request.group_name = names.group;
  request.group_desc = half->state.label;
  request.half = half->half;
  request.local_rank = world.local_rank();
  request.interface = world.interface();
  request.timeout = impl->timeout;
  try {
    distributed::MadeHalf made = distributed::make_half("gloo", request, impl->timeout, options.with_labels,
                                                        options.check ? "pg_wrapper:" + names.group : "");
    keys->set_deadline(std::nullopt);
    half->shown.group = std::move(made.group);
    half->state.backend = std::move(made.backend);
    half->state.wrapper_helper = std::move(made.helper);
    half->shown.registered_name = distributed::register_group(names.group, impl->global_rank(), half->shown.group);
    if (half->has_label) half->listing = distributed::list_in_traces(half->state, half->kind);
  } catch (const Error&) {
    keys->delete_written_keys();
    throw;
  } catch (...) {
    CommFailure failure;
    failure.cause = base::describe_current_exception();
    const auto fault = keys->fault();
    if (!fault) failure.peers = silent_ranks(*keys, impl->ranks);
    if (!failure.peers.empty()) {
      failure.cause +=
          formatted("; no word from rank{} {}", failure.peers.size() == 1 ? "" : "s", fmt::join(failure.peers, ", "));
    }
    keys->delete_written_keys();
    failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
    failure.kind = fault                              ? CommErrorKind::store_down
                   : failure.elapsed >= impl->timeout ? CommErrorKind::peer_missing
                                                      : CommErrorKind::peer_lost;
    failure.group = names.group;
    failure.label = half->state.label;
    failure.ranks = impl->ranks;
    failure.rank = impl->global_rank();
    failure.operation = "join_python";
    failure.advice =
        fault ? distributed::kAdviceStoreSilent
              : formatted("See whether the Python ranks make the group too: the keys looked at begin with '{}'",
                          names.key_prefix);
    throw CommError(std::move(failure));
  }
  impl->cpu = half;
  impl->device = half;
  return std::shared_ptr<GroupCoordinator>(new GroupCoordinator(std::move(impl)));
}

}  // namespace dbg
