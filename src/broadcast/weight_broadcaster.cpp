// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How a broadcaster comes to be and goes; its syncs are in sync_roles.cpp.
#include "dbg/weight_broadcaster.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "broadcast/broadcaster_impl.h"
#include "distributed/nccl_backend.h"
#include "distributed/network_interfaces.h"

namespace dbg {

using broadcast::SyncContext;
using distributed::TrackedStore;

namespace {

BroadcastOptions checked(BroadcastOptions options) {
  const auto refuse = [](const std::string& what) { throw ConfigError("WeightBroadcaster: " + what); };
  if (options.name.empty() || options.name.find('/') != options.name.npos) {
    refuse(formatted("the name is '{}'; it is not empty and has no slash.", options.name));
  }
  if (options.key_prefix.empty() || options.key_prefix.front() == '/' || options.key_prefix.back() == '/') {
    refuse(formatted("key_prefix is '{}'; it is not empty and has no slash at its ends.", options.key_prefix));
  }
  if (options.transport != "auto" && options.transport != "gloo" && options.transport != "nccl") {
    refuse(formatted("the transport '{}' is not known; there are: auto, gloo, nccl.", options.transport));
  }
  if (const std::string why = distributed::why_no_nccl(); options.transport == "nccl" && !why.empty()) {
    refuse(formatted("the transport nccl was asked for, and {}: take gloo, or run where a GPU and NCCL are.", why));
  }
  broadcast::BucketCutter({options.bucket_bytes, 256});  // says what is wrong with bucket_bytes
  if (options.chunk_bytes == 0) refuse("chunk_bytes is 0; it is at least 1.");
  if (options.depth < 1) refuse(formatted("depth is {}; it is at least 1.", options.depth));
  if (options.timeout <= std::chrono::milliseconds::zero()) {
    refuse(formatted("timeout is {} ms; it is above 0.", options.timeout.count()));
  }
  if (options.link_rates && !(options.link_rates->card > 0)) {
    refuse(formatted("link_rates.card is {}; it is above 0.", options.link_rates->card));
  }
  if (options.interface.empty()) {
    if (const char* named = std::getenv("GLOO_SOCKET_IFNAME")) options.interface = named;
  }
  distributed::check_interfaces(options.interface);
  if (options.node_id.empty()) options.node_id = this_node_id();
  return options;
}

std::vector<std::string> names_of(const std::vector<WorkerMetadata>& actors,
                                  const std::vector<WorkerMetadata>& rollouts) {
  std::vector<std::string> names;
  for (const auto* workers : {&actors, &rollouts}) {
    for (const WorkerMetadata& worker : *workers) names.push_back(worker.who());
  }
  return names;
}

// Of the ranks the nodes are known, of actors that do not send they are not.
std::vector<std::string> names_of(const BroadcastTopology& topology) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < topology.actor_ranks.size(); ++i) {
    names.push_back(topology.actor_ranks[i] >= 0 ? topology.who(topology.actor_ranks[i]) : formatted("actor {}", i));
  }
  for (const int rank : topology.rollout_ranks) names.push_back(topology.who(rank));
  return names;
}

// What closing may take, should the store say nothing.
constexpr std::chrono::milliseconds kFarewell{2000};

}  // namespace

SyncError::SyncError(CommFailure failure) : CommError(std::move(failure)) {}
SyncError::~SyncError() = default;

WorkerMetadata WeightBroadcaster::metadata(WorkerRole role, int index, int num_of_role,
                                           const BroadcastOptions& options) {
  WorkerMetadata worker;
  worker.role = role;
  worker.index = index;
  worker.num_of_role = num_of_role;
  worker.node_id = options.node_id.empty() ? this_node_id() : options.node_id;
  worker.multi_sender = options.multi_sender && allows_relays(options.source_kind);
  if (role == WorkerRole::actor && index == 0) worker.endpoint = options.name;
  return worker;
}

std::unique_ptr<WeightBroadcaster> WeightBroadcaster::create(c10::intrusive_ptr<c10d::Store> store,
                                                             const BroadcastRole& role,
                                                             const BroadcastOptions& options) {
  const auto began = Impl::Clock::now();
  const int of_role = role.role == WorkerRole::actor ? role.num_actors : role.num_rollouts;
  if (role.num_actors < 1 || role.num_rollouts < 1 || role.index < 0 || role.index >= of_role) {
    throw ConfigError(
        formatted("WeightBroadcaster: {} {} of {} actors and {} rollouts; there is at least one of each, and "
                  "the index is from 0 to {}.",
                  to_text(role.role), role.index, role.num_actors, role.num_rollouts, of_role - 1));
  }
  auto impl = std::make_unique<Impl>();
  impl->options = checked(options);
  impl->role = role.role;
  impl->set_store(store, impl->options.name);

  // Before the meeting only the roles are known.
  std::vector<WorkerMetadata> actors(static_cast<std::size_t>(role.num_actors));
  std::vector<WorkerMetadata> rollouts(static_cast<std::size_t>(role.num_rollouts));
  for (std::size_t i = 0; i < actors.size(); ++i) actors[i].index = static_cast<int>(i);
  for (std::size_t i = 0; i < rollouts.size(); ++i) {
    rollouts[i].role = WorkerRole::rollout;
    rollouts[i].index = static_cast<int>(i);
  }
  const int worker = role.role == WorkerRole::actor ? role.index : role.num_actors + role.index;
  broadcast::SyncMeeting joining(impl->keys, names_of(actors, rollouts), worker, impl->options.timeout);
  std::vector<std::string> said;
  try {
    joining.put_own("meta", metadata(role.role, role.index, of_role, impl->options).to_json());
    joining.meet(
        "join", {{"num_actors", std::to_string(role.num_actors)}, {"num_rollouts", std::to_string(role.num_rollouts)}});
    said = joining.values_of("meta", 0, role.num_actors + role.num_rollouts);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    impl->throw_failure(broadcast::cause_of_meeting(), began);
  }
  for (std::size_t i = 0; i < said.size(); ++i) {
    const bool is_actor = i < actors.size();
    (is_actor ? actors[i] : rollouts[i - actors.size()]) = WorkerMetadata::from_json(said[i]);
  }
  impl->context = std::make_shared<SyncContext>();
  impl->context->topology = build_topology(actors, rollouts);
  impl->context->who = names_of(actors, rollouts);
  impl->context->worker = worker;
  return std::unique_ptr<WeightBroadcaster>(new WeightBroadcaster(std::move(impl)));
}

std::unique_ptr<WeightBroadcaster> WeightBroadcaster::create(c10::intrusive_ptr<c10d::Store> store,
                                                             const BroadcastTopology& topology, WorkerRole role,
                                                             int index, const BroadcastOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = checked(options);
  impl->role = role;
  topology.check();
  topology.place_of(role, index);  // throws for a worker that is not there
  if (topology.num_senders > 1 && !allows_relays(options.source_kind)) {
    throw ConfigError(
        formatted("WeightBroadcaster: the topology has {} senders, and a source of this kind can have one "
                  "only; pass the kind to build_topology.",
                  topology.num_senders));
  }
  impl->set_store(store, topology.endpoint);
  impl->context = std::make_shared<SyncContext>();
  impl->context->topology = topology;
  impl->context->who = names_of(topology);
  impl->context->worker = role == WorkerRole::actor ? index : impl->context->num_actors() + index;
  return std::unique_ptr<WeightBroadcaster>(new WeightBroadcaster(std::move(impl)));
}

WeightBroadcaster::WeightBroadcaster(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  SyncContext& context = *impl_->context;
  const int index = impl_->role == WorkerRole::actor ? context.worker : context.worker - context.num_actors();
  impl_->place = context.topology.place_of(impl_->role, index);
  impl_->meeting =
      std::make_unique<broadcast::SyncMeeting>(impl_->keys, context.who, context.worker, impl_->options.timeout);
  context.watch = std::make_shared<broadcast::SyncWatch>(impl_->keys, context.worker, context.num_workers(),
                                                         impl_->role == WorkerRole::actor);
  if (impl_->is_root()) base::log(LogLevel::info, "WeightBroadcaster", "{}", context.topology.describe());
}

WeightBroadcaster::~WeightBroadcaster() {
  finalize();
}

void WeightBroadcaster::Impl::set_store(const c10::intrusive_ptr<c10d::Store>& store, const std::string& endpoint) {
  if (!store) throw ConfigError("WeightBroadcaster: the store is null; give a HashStore, FileStore or TCPStore.");
  keys = TrackedStore::with_own_caller(store, formatted("{}/sync/{}", options.key_prefix, endpoint));
  keys->set_call_limit(options.timeout);
}

void WeightBroadcaster::Impl::require(WorkerRole wanted) const {
  const char* call = wanted == WorkerRole::actor ? "send" : "receive";
  if (is_final) throw LogicError(formatted("WeightBroadcaster: {}() after finalize().", call));
  if (const pid_t own = ::getpid(); own != owner_pid) {
    broadcast::SyncCause cause;
    cause.kind = CommErrorKind::forked;
    cause.text = formatted("process {} is a child of {}, which made the broadcaster", own, owner_pid);
    cause.advice = "make broadcasters after the fork, or start workers by exec";
    throw_failure(cause, Clock::now());
  }
  if (role != wanted) {
    throw LogicError(formatted("WeightBroadcaster: {} called {}(); actors call send(), rollouts call receive().",
                               context->own(), call));
  }
}

SyncReport WeightBroadcaster::send(WeightSource& source, std::optional<std::int64_t> version) {
  impl_->require(WorkerRole::actor);
  return impl_->send(source, version);
}

SyncReport WeightBroadcaster::receive(WeightSink& sink) {
  impl_->require(WorkerRole::rollout);
  return impl_->receive(sink);
}

void WeightBroadcaster::Impl::finalize() noexcept {
  if (is_final) return;
  is_final = true;
  if (::getpid() != owner_pid) {
    // A forked child has neither the threads nor the connections that would have to end; they are the parent's.
    base::run_fenced([&] {
      static_cast<void>(new std::optional<Group>(std::move(group)));
      static_cast<void>(new std::shared_ptr<broadcast::SyncWatch>(std::move(context->watch)));
    });
    return;
  }
  base::run_fenced([&] {
    drop_group();
    memory.clear();
    digests.clear();
    if (last_sync.generation < 0) return;  // the others may still be reading what this rank said of itself
    keys->set_call_limit(std::min(keys->call_limit(), kFarewell));
    meeting->forget_own("hello");
    if (!is_root()) return;
    // The others may still look at what was said of the last sync, until they say that they are through with it.
    if (has_failed_last && !has_lost_last) {
      const auto ends = meeting->await_all_done(last_sync, kFarewell);
      is_last_done = std::all_of(ends.begin(), ends.end(), [](const auto& said) { return said.has_value(); });
    }
    if (is_last_done) meeting->forget_of_all(last_sync);
  });
  context->watch.reset();
}

void WeightBroadcaster::finalize() noexcept {
  impl_->finalize();
}

std::int64_t WeightBroadcaster::version() const noexcept {
  return impl_->version;
}

bool WeightBroadcaster::is_torn() const noexcept {
  return impl_->is_torn;
}

const BroadcastTopology& WeightBroadcaster::topology() const noexcept {
  return impl_->context->topology;
}

int WeightBroadcaster::rank() const noexcept {
  return impl_->place.rank;
}

std::string WeightBroadcaster::Impl::describe() const {
  const std::string part = place.rank < 0              ? "sends nothing"
                           : place.rank == 0           ? "root"
                           : role == WorkerRole::actor ? "relay"
                                                       : "consumer";
  const std::string rank = place.rank < 0 ? std::string() : formatted(", rank {} of {}", place.rank, place.world_size);
  return formatted("{}: {}{}; {}", context->own(), part, rank, context->topology.describe());
}

std::string WeightBroadcaster::describe() const {
  return impl_->describe();
}

}  // namespace dbg
