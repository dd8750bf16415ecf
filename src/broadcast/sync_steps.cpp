// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What both roles do before and after the bytes move.
#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "broadcast/broadcaster_impl.h"
#include "broadcast/cost_model.h"
#include "broadcast/gloo_transport.h"
#include "broadcast/header.h"
#include "broadcast/nccl_transport.h"
#include "broadcast/scope_time.h"
#include "distributed/labels.h"
#include "distributed/network_interfaces.h"

namespace dbg {

using broadcast::SyncCause;
using broadcast::SyncHello;
using distributed::TrackedStore;

namespace {

const char* word_of(Integrity integrity) {
  switch (integrity) {
    case Integrity::none:
      return "none";
    case Integrity::bucket:
      return "bucket";
    case Integrity::weight:
      return "weight";
  }
  return "?";
}

// How long it is asked how a sync ended, when the store fails after this rank was ready.
constexpr std::chrono::milliseconds kSettleLimit{5000};

// How often it is looked whether the sync failed while a group is being made, and how long the making may then go on:
// where all are at it, it comes to its end.
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kMakingGrace{200};

// gloo's group. It connects on a thread of its own, for nothing ends its wait for a rank that has given up but the
// timeout: when the sync fails meanwhile the thread is left behind. And the threads that gloo starts there have SIGPIPE
// blocked, as it has.
// Throws: Interrupted; Error with what gloo said.
distributed::MadeHalf connected_half(const BackendRequest& request, const c10::intrusive_ptr<TrackedStore>& keys,
                                     const distributed::AbortSignal& signal) {
  struct Making {
    distributed::MadeHalf half;
    std::optional<std::string> refusal;
    std::atomic<bool> is_left{false};
  };
  const auto making = std::make_shared<Making>();
  broadcast::WireThread thread([making, request, keys] {
    making->refusal = base::run_fenced(
        [&] { making->half = distributed::make_half("gloo", request, request.timeout, /*with_labels=*/true); });
    if (!making->is_left) return;
    making->half = {};
    keys->delete_written_keys();
  });
  while (!thread.join_for(kLook)) {
    if (!signal.cause() || thread.join_for(kMakingGrace)) continue;
    keys->set_deadline(std::chrono::steady_clock::now());
    if (thread.join_for(kMakingGrace)) continue;
    making->is_left = true;
    throw broadcast::Interrupted();
  }
  if (making->refusal) throw Error(*making->refusal);
  return std::move(making->half);
}

}  // namespace

std::shared_ptr<broadcast::SyncRun> WeightBroadcaster::Impl::meet(const SyncHello& hello, Clock::time_point began,
                                                                  SyncReport& report) {
  const broadcast::ScopeTime timed(report.begin_seconds);
  const BroadcastTopology& topology = context->topology;
  broadcast::RollingHash layout;
  layout.add(std::string_view(topology.to_json()));
  try {
    meeting->put_own("hello", hello.to_json());
    broadcast::SyncId sync =
        meeting->meet("sync", {{"num_senders", std::to_string(topology.num_senders)},
                               {"world_size", std::to_string(topology.world_size)},
                               {"topology", formatted("{} (hash {:016x})", topology.describe(), layout.value())},
                               {"bucket_bytes", std::to_string(options.bucket_bytes)},
                               {"chunk_bytes", std::to_string(options.chunk_bytes)},
                               {"integrity", word_of(options.integrity)},
                               {"transport", options.transport == "nccl" ? "nccl" : "gloo"},
                               {"version of the wire format", std::to_string(broadcast::kWireVersion)}});
    // All have begun this sync, so nobody looks at the keys of the one before any more.
    if (last_sync.generation >= 0) {
      meeting->forget(last_sync);
      context->watch->forget(last_sync, is_root());
    }
    // And all know each other.
    if (last_sync.generation < 0) base::run_fenced([&] { meeting->forget_own("meta"); });
    last_sync = sync;
    has_failed_last = has_lost_last = is_last_done = false;
    auto run = std::make_shared<SyncRun>();
    run->context = context;
    run->its_watch = context->watch;
    run->rank = place.rank;
    run->signal = context->watch->begin(sync);
    report.generation = sync.generation;
    run->id = std::move(sync);
    report.num_senders = topology.num_senders;
    report.world_size = topology.world_size;
    return run;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    const SyncCause cause = broadcast::cause_of_meeting();
    drop_group();
    throw_failure(cause, began);
  }
}

void WeightBroadcaster::Impl::begin(SyncRun& run, std::optional<std::int64_t> wanted_version, SyncReport& report) {
  const broadcast::ScopeTime timed(report.begin_seconds);
  context->watch->activity().set("begins a sync");
  broadcast::BeginWord word;
  if (is_root()) {
    // A group serves again only where every rank still has the same one.
    word.makes_group = options.rebuild_group || !group;
    std::int64_t newest = version;
    bool is_lost = false;
    for (int worker = 0; worker < context->num_workers(); ++worker) {
      const SyncHello hello = SyncHello::from_json(meeting->values_of("hello", worker, worker + 1).front());
      newest = std::max(newest, hello.version);
      is_lost = is_lost || hello.fails;
      const bool is_member =
          worker >= context->num_actors() || context->topology.actor_ranks[static_cast<std::size_t>(worker)] >= 0;
      if (is_member && group && hello.group != group->generation) word.makes_group = true;
    }
    // Nobody sets out to make a group for a sync that has failed: a worker says so in a moment, and why.
    if (is_lost)
      meeting->await_verdict(
          run.id, [] { return false; }, *run.signal);
    word.version = wanted_version.value_or(newest + 1);
    meeting->put_begin(run.id, word);
  } else {
    word = meeting->await_begin(run.id, *run.signal);
  }
  run.version = report.version = word.version;
  report.group_was_made = word.makes_group;
  if (!is_in_group()) return;
  if (word.makes_group) make_group(run);
  make_transport(run);
}

void WeightBroadcaster::Impl::make_group(const SyncRun& run) {
  drop_group();
  const std::int64_t generation = run.id.generation;
  Group made;
  made.generation = generation;
  made.keys = c10::make_intrusive<TrackedStore>(keys, run.id.key("group"));
  made.keys->setTimeout(options.timeout);
  made.keys->set_deadline(Clock::now() + options.timeout);

  BackendRequest request;
  request.store = made.keys;
  request.rank = place.rank;
  request.size = place.world_size;
  for (int rank = 0; rank < place.world_size; ++rank) request.global_ranks.push_back(rank);
  const std::string label = distributed::label_of(distributed::sanitised_group_name(options.name), "cpu");
  request.group_name = distributed::unique_group_name(label, request.global_ranks, generation);
  request.group_desc = label;
  request.half = "cpu";
  request.timeout = options.timeout;
  request.interface = options.interface;
  const auto refusal = base::run_fenced([&] {
    made.half = connected_half(request, made.keys, *run.signal);
    if (options.transport == "nccl") {
      if (is_root()) made.keys->put("nccl", broadcast::make_nccl_id());
      const std::vector<std::uint8_t> id = made.keys->get("nccl");
      made.nccl = broadcast::make_nccl_calls(std::string(id.begin(), id.end()), place.rank, place.world_size,
                                             options.timeout, run.signal);
    }
    made.keys->set_deadline(std::nullopt);
  });
  if (refusal) {
    made.keys->delete_written_keys();
    if (run.signal->cause()) throw broadcast::Interrupted();
    throw broadcast::WireError(
        CommErrorKind::broken, -1,
        formatted("the group could not be made over the interface '{}': {}", options.interface, *refusal));
  }
  group.emplace(std::move(made));
}

void WeightBroadcaster::Impl::make_transport(SyncRun& run) {
  broadcast::GlooTransportOptions wire;
  wire.num_senders = place.num_senders;
  wire.node_ids = context->topology.node_ids;
  wire.chunk_bytes = options.chunk_bytes;
  wire.timeout = options.timeout;
  wire.limits = {static_cast<std::uint64_t>(run.id.generation), options.bucket_bytes};
  wire.signal = run.signal;
  const auto backend = wrap_backend ? wrap_backend(group->half.backend) : group->half.backend;
  run.transport = std::make_shared<broadcast::GlooTransport>(backend, std::move(wire));
  if (group->nccl) {
    broadcast::NcclTransportOptions nccl;
    nccl.rank = place.rank;
    nccl.num_senders = place.num_senders;
    nccl.depth = options.depth;
    nccl.bucket_bytes = options.bucket_bytes;
    nccl.timeout = options.timeout;
    nccl.signal = run.signal;
    run.transport = std::make_shared<broadcast::NcclTransport>(run.transport, group->nccl, group->nccl_memory, nccl);
  }
  if (wrap_transport) run.transport = wrap_transport(run.transport);

  std::vector<at::Tensor> slots;
  for (int i = 0; i < options.depth; ++i) {
    slots.push_back(memory.take(run.transport->memory_for(options.bucket_bytes)));
  }
  run.exchange = std::make_shared<broadcast::BucketExchange>(std::move(slots), run.signal);
}

void WeightBroadcaster::Impl::agree_on_commit(SyncRun& run) {
  broadcast::SyncWatch& watch = *context->watch;
  watch.activity().set("has all bytes and waits for the others");
  // From here on the root may decide to commit.
  try {
    meeting->put_ready(run.id);
    if (is_root()) {
      meeting->await_all_ready(run.id, *run.signal);
      if (watch.decide_commit(run.id)) throw broadcast::Interrupted();
      return;
    }
    meeting->await_verdict(
        run.id,
        [&] {
          const auto verdict = watch.verdict(run.id);
          if (verdict.cause) throw broadcast::Interrupted();
          return verdict.is_decided;
        },
        *run.signal);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    const SyncCause own = cause_of_failure(run);
    // A decision holds, whatever this rank's clock and connections say; and a store that fails may answer again.
    for (const auto deadline = Clock::now() + std::min(options.timeout, kSettleLimit);;) {
      bool is_committed = false;
      const auto refusal = base::run_fenced([&] { is_committed = watch.settle(run.id, own); });
      if (is_committed) return;
      if (!refusal || Clock::now() >= deadline) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

void WeightBroadcaster::Impl::conclude(SyncRun& run, broadcast::WireThread* wire, Clock::time_point began,
                                       const std::string& failure, std::map<std::string, std::uint64_t> new_digests,
                                       SyncReport& report) {
  const auto complain = [&](const std::optional<std::string>& refusal) {
    if (!refusal) return;
    base::log(LogLevel::warning, "WeightBroadcaster", "{}: version {} is committed, and what follows failed: {}",
              context->own(), run.version, *refusal);
  };
  complain(base::run_fenced([&] {
    const broadcast::ScopeTime timed(report.wait_seconds);
    report_end(run, failure, report);
  }));
  if (is_root() || role == WorkerRole::rollout) {
    complain(base::run_fenced([&] { note_changes(std::move(new_digests), report); }));
  }
  complain(base::run_fenced([&] { end(run, wire, began, report); }));
}

void WeightBroadcaster::Impl::report_end(SyncRun& run, const std::string& failure, SyncReport& report) {
  context->watch->activity().set("waits for the others' commits");
  std::vector<std::optional<std::string>> ends(context->who.size());
  const auto refusal = base::run_fenced([&] {
    if (is_root()) {
      ends = meeting->await_all_done(run.id, options.timeout);
    } else {
      meeting->put_done(run.id, failure);
    }
  });
  if (refusal) {
    base::log(LogLevel::warning, "WeightBroadcaster",
              "{}: version {} is committed, and the store does not pass it on: {}", context->own(), run.version,
              *refusal);
  }
  if (!is_root()) return;
  is_last_done = std::all_of(ends.begin(), ends.end(), [](const auto& said) { return said.has_value(); });
  for (int worker = context->num_actors(); worker < context->num_workers(); ++worker) {
    const auto& said = ends[static_cast<std::size_t>(worker)];
    ConsumerCommit commit;
    commit.consumer = context->who[static_cast<std::size_t>(worker)];
    commit.has_committed = said.has_value() && said->empty();
    if (!said) {
      commit.cause =
          refusal ? "the store failed: " + *refusal : formatted("no word within {} ms", options.timeout.count());
    }
    if (said && !said->empty()) commit.cause = *said;
    report.consumers.push_back(std::move(commit));
  }
}

void WeightBroadcaster::Impl::end(SyncRun& run, broadcast::WireThread* wire, Clock::time_point began,
                                  SyncReport& report) {
  if (wire != nullptr && !wire->join_for(second_deadline)) {
    // All bytes are through everywhere; only this rank's thread does not come back. It is left behind with what it
    // owns.
    base::log(LogLevel::error, "WeightBroadcaster",
              "{}: the backend does not return from its last message; the group is made anew for the next sync",
              context->own());
    drop_group();
  } else if (run.transport) {
    report.wire_seconds = run.wire_seconds;
    report.sent_bytes = run.sent_bytes;
    report.num_buckets = run.num_buckets;
    report.most_buckets_in_use = run.exchange->most_in_use();
    for (at::Tensor& slot : run.exchange->take_back()) memory.give_back(std::move(slot));
  }
  if (options.rebuild_group || run.has_wire_failed) drop_group();
  context->watch->end();
  report.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  if (options.link_rates) predict(report);
}

void WeightBroadcaster::Impl::predict(SyncReport& report) const {
  broadcast::CostInput input;
  const BroadcastTopology& topology = context->topology;
  input.total_bytes = report.total_bytes;
  input.num_senders = topology.num_senders;
  std::map<std::string, int> consumers;
  for (int rank = topology.num_senders; rank < topology.world_size; ++rank) {
    ++consumers[topology.node_ids[static_cast<std::size_t>(rank)]];
  }
  input.consumer_nodes = static_cast<int>(consumers.size());
  for (const auto& [node, count] : consumers) input.consumers_per_node = std::max(input.consumers_per_node, count);
  input.cards_per_consumer_node = options.link_rates->cards_per_consumer_node;
  input.card_rate = options.link_rates->card;
  input.local_rate = options.link_rates->local;
  input.bucket_bytes = options.bucket_bytes;
  input.chunk_bytes = options.chunk_bytes;
  input.hop_seconds = options.link_rates->hop_seconds;
  input.bucket_seconds = options.link_rates->bucket_seconds;
  const broadcast::CostEstimate cost = broadcast::estimate_cost(input);
  report.predicted_seconds = cost.seconds;
  report.predicted_limit = cost.limit;
}

void WeightBroadcaster::Impl::note_changes(std::map<std::string, std::uint64_t> now, SyncReport& report) {
  if (options.integrity != Integrity::weight) return;
  if (!digests.empty()) {
    std::uint64_t changed = 0;
    for (const auto& [name, digest] : now) {
      const auto before = digests.find(name);
      changed += before == digests.end() || before->second != digest ? 1 : 0;
    }
    report.num_changed = changed;
  }
  digests = std::move(now);
}

SyncCause WeightBroadcaster::Impl::fail(SyncRun& run, broadcast::WireThread* wire) {
  SyncCause cause = cause_of_failure(run);
  // Once the root has decided to commit, which it does after this rank was ready, no cause counts any more but the own.
  if (auto agreed = context->watch->fail(run.id, cause)) cause = std::move(*agreed);
  run.signal->raise(cause.text);
  if (run.exchange) run.exchange->wake();
  if (wire != nullptr && !wire->join_for(second_deadline)) {
    cause.advice = formatted(
        "the backend did not return within {:.1f} s after it was told to abort; end this process, its connections are "
        "lost. {}",
        std::chrono::duration<double>(second_deadline).count(), cause.advice);
  }
  return cause;
}

void WeightBroadcaster::Impl::end_failed(std::shared_ptr<SyncRun> run, std::unique_ptr<broadcast::WireThread> wire,
                                         const SyncCause& cause, Clock::time_point began) {
  base::run_fenced([&] { meeting->put_done(run->id, cause.text); });
  has_failed_last = true;
  has_lost_last = cause.kind == CommErrorKind::peer_lost;
  // What the wire's thread still uses stays with it.
  wire.reset();
  run.reset();
  drop_group();
  memory.clear();
  context->watch->end();
  throw_failure(cause, began);
}

void WeightBroadcaster::Impl::throw_failure(const SyncCause& cause, Clock::time_point began) const {
  CommFailure failure;
  failure.kind = cause.kind;
  failure.group = options.name;
  failure.rank = context ? context->worker : -1;
  failure.peers = cause.workers;
  failure.operation = role == WorkerRole::actor ? "send" : "receive";
  failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  failure.cause = cause.text;
  failure.advice = cause.advice;
  throw SyncError(std::move(failure));
}

void WeightBroadcaster::Impl::drop_group() noexcept {
  if (!group) return;
  group->nccl.reset();
  group->half.group.reset();
  group->half.backend.reset();
  group->keys->delete_written_keys();
  group.reset();
}

}  // namespace dbg
