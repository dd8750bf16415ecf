// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Moves a model's weights from trainers to inference ranks, never hanging, never passing half an update off as whole.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dbg/broadcast_topology.h"
#include "dbg/error.h"
#include "dbg/export.h"
#include "dbg/sync_report.h"
#include "dbg/weight_source.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace dbg {
namespace broadcast {
struct BroadcasterAccess;  // of dbg's own tests
}  // namespace broadcast

/// How it is found that bytes arrived as they were sent.
enum class Integrity {
  none,    ///< the network's own checksums have to do
  bucket,  ///< a digest of each bucket, compared before any weight of it is handed to the sink
  weight,  ///< and one of each weight, by which the report says how many changed since the sync before
};

/// How fast links are, for the prediction in the report. Bytes a second, each direction.
struct LinkRates {
  double card = 0;   ///< of one network card, bytes a second
  double local = 0;  ///< between two ranks of a node, bytes a second; 0: no limit
  int cards_per_consumer_node = 1;
  double hop_seconds = 0;     ///< the latency of one message
  double bucket_seconds = 0;  ///< what a bucket costs beside its bytes
};

/// How weights are broadcast. All ranks pass the same, except `interface` and `node_id`, which are each rank's own.
struct BroadcastOptions {
  /// Keeps broadcasters that share a store apart.
  std::string name = "weights";
  /// `auto`: gloo. `nccl`: the bytes go over NCCL, what steers them over gloo.
  std::string transport = "auto";
  /// How much goes at once, at least 64. Larger: less overhead; smaller: less memory, an earlier start.
  std::uint64_t bucket_bytes = std::uint64_t{64} << 20;
  /// What is passed on at once along the chain.
  std::uint64_t chunk_bytes = std::uint64_t{512} << 10;
  /// Buckets in flight on each rank: while one is sent, the next is filled.
  int depth = 2;
  /// Whether actors on actor 0's node send too, each over its own network card. Actor 0's counts.
  bool multi_sender = true;
  /// What sources hand out; for `delta` there is one sender, whatever `multi_sender` says.
  SourceKind source_kind = SourceKind::full_weights;
  /// Makes the group anew for each sync and closes it after; else only after a failure.
  bool rebuild_group = false;
  /// Of each single wait for another rank, also for one whose source or sink is at work, and of each call to the store.
  /// No limit of the whole sync: ranks that wait for its end wait on as long as buckets move somewhere.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  Integrity integrity = Integrity::bucket;
  /// A source without a single weight: an error, or a success with 0 weights.
  bool refuse_empty = false;
  /// The network interface that gloo binds to, or several separated by commas. Empty: `GLOO_SOCKET_IFNAME`, and without
  /// it the address that this machine's name stands for.
  std::string interface = {};
  /// Which machine this is; empty: `this_node_id()`.
  std::string node_id = {};
  /// Put before every key in the store.
  std::string key_prefix = "dbg";
  std::optional<LinkRates> link_rates = std::nullopt;
};

/// A worker among all workers, where there is no driver that knows them.
struct BroadcastRole {
  WorkerRole role = WorkerRole::actor;
  int index = 0;
  int num_actors = 1;
  int num_rollouts = 1;

  static BroadcastRole actor(int index, int num_actors, int num_rollouts) {
    return {WorkerRole::actor, index, num_actors, num_rollouts};
  }
  static BroadcastRole rollout(int index, int num_actors, int num_rollouts) {
    return {WorkerRole::rollout, index, num_actors, num_rollouts};
  }
};

/// A sync failed, on all ranks for the same `failure().cause`. `failure().peers` are workers: actors first, by index.
class DBG_API SyncError : public CommError {
 public:
  explicit SyncError(CommFailure failure);
  ~SyncError() override;
};

/// One worker's part in syncing weights: root, relay, consumer, or an actor that sends nothing.
///
/// All workers call it for each sync: actors `send`, rollouts `receive`. Either all of them return a report, or all of
/// them throw a SyncError with the same cause within the timeout and about a second; ten more where a backend does not
/// come back from an abort. Without the store nobody can agree on anything: when it is dead or silent, each rank throws
/// in time for a cause of its own. After a failure the next sync works again, without any of these objects being made
/// anew, when the workers are alive.
/// A rank may be a process or a thread.
/// Threads: one thread at a time; sources and sinks are called on the thread that calls. `version()` and `is_torn()`
/// may be asked from any thread.
class DBG_API WeightBroadcaster {
 public:
  /// Meets the other workers in the store and lays out who sends.
  ///
  /// Collective: all actors and rollouts, within the timeout.
  /// Throws: ConfigError for options that make no sense; SyncError: peer_missing naming who never came,
  /// handshake_mismatch with both values.
  static std::unique_ptr<WeightBroadcaster> create(c10::intrusive_ptr<c10d::Store> store, const BroadcastRole& role,
                                                   const BroadcastOptions& options = {});

  /// The same where a driver has called `build_topology`. Meets nobody.
  static std::unique_ptr<WeightBroadcaster> create(c10::intrusive_ptr<c10d::Store> store,
                                                   const BroadcastTopology& topology, WorkerRole role, int index,
                                                   const BroadcastOptions& options = {});

  /// What this worker would tell a driver. `num_of_role`: how many of its role there are.
  static WorkerMetadata metadata(WorkerRole role, int index, int num_of_role, const BroadcastOptions& options = {});

  ~WeightBroadcaster();
  WeightBroadcaster(const WeightBroadcaster&) = delete;
  WeightBroadcaster& operator=(const WeightBroadcaster&) = delete;

  /// Sends the source's weights to all consumers. `version`: the model's; without it the one after the highest that any
  /// worker has seen. The root's counts.
  ///
  /// Collective: on every actor, while every rollout calls `receive`. The source is driven to its end on every actor.
  /// When a sync fails, actors that are alive stop after the same weight, so that a source that is a collective leaves
  /// none of them waiting.
  /// The root returns when all consumers have said how their commits went, or after the timeout.
  /// Throws: SyncError; LogicError on a rollout.
  SyncReport send(WeightSource& source, std::optional<std::int64_t> version = std::nullopt);

  /// Receives all weights into the sink and commits them.
  ///
  /// Collective: on every rollout, while every actor calls `send`.
  /// Throws: SyncError; LogicError on an actor.
  SyncReport receive(WeightSink& sink);

  /// Frees group, buffers and thread, and deletes keys. Further calls do nothing; a sync after it is a LogicError.
  void finalize() noexcept;

  /// The version that was committed last; -1 before the first. On the root: the last one that all consumers committed;
  /// on other actors, who do not hear of the commits: the last one that all consumers had whole and were to commit.
  std::int64_t version() const noexcept;
  /// On a consumer: the model is a mixture. It is while a sync writes into an in-place sink and while a sink commits,
  /// and stays so after one that failed there, until the next full sync.
  bool is_torn() const noexcept;

  const BroadcastTopology& topology() const noexcept;
  /// This worker's rank among senders and consumers; -1: it does not send.
  int rank() const noexcept;
  /// One line: `actor 0 on node a: root, rank 0 of 6; 2 of 8 actors send, world_size 6`.
  std::string describe() const;

 private:
  struct Impl;
  friend struct broadcast::BroadcasterAccess;
  explicit WeightBroadcaster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dbg
