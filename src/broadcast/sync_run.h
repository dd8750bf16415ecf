// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One sync on one rank: what its two threads share, and how its failure is put into words.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "broadcast/bucket_exchange.h"
#include "broadcast/sync_watch.h"
#include "broadcast/transport.h"
#include "dbg/broadcast_topology.h"

namespace dbg::broadcast {

/// Who the workers are; the same for all syncs of a broadcaster.
struct SyncContext {
  std::vector<std::string> who;  ///< by worker: actors first, then rollouts
  int worker = 0;                ///< the own one
  BroadcastTopology topology;
  std::shared_ptr<SyncWatch> watch;

  const std::string& own() const { return who[static_cast<std::size_t>(worker)]; }
  int num_actors() const { return static_cast<int>(topology.actor_ranks.size()); }
  int num_workers() const { return static_cast<int>(who.size()); }
  /// -1 for a rank that is not there.
  int worker_of_rank(int rank) const;
};

/// What a source or sink did wrong, with what it was doing.
struct ForeignFailure {
  std::string text;
};

/// What both threads of a rank use during a sync. Each owns it, and neither takes anything out of it: the wire's thread
/// may be left behind in the middle of a call.
struct SyncRun {
  std::shared_ptr<const SyncContext> context;
  std::shared_ptr<SyncWatch> its_watch;  ///< the broadcaster lets its own go when it is finalized
  SyncId id;
  std::int64_t version = 0;
  int rank = -1;
  std::shared_ptr<distributed::AbortSignal> signal;
  std::shared_ptr<Transport> transport;  ///< null on an actor that does not send
  std::shared_ptr<BucketExchange> exchange;
  std::atomic<bool> has_wire_failed{false};  ///< be it after the commit: the group is of no more use
  double wire_seconds = 0;                   ///< of the wire's thread; read once it has ended
  std::uint64_t sent_bytes = 0;              ///< likewise
  std::uint64_t num_buckets = 0;             ///< likewise

  SyncWatch& watch() const { return *its_watch; }
};

/// Inside a catch block: what went wrong, from this rank's view. Asks who is there when a peer did not do its part.
SyncCause cause_of_failure(const SyncRun& run);

/// Inside a catch block, while workers meet and there is no run yet: likewise.
SyncCause cause_of_meeting();

}  // namespace dbg::broadcast
