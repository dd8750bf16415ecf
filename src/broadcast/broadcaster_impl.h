// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a WeightBroadcaster holds from sync to sync.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broadcast/bucket_exchange.h"
#include "broadcast/bucket_plan.h"
#include "broadcast/nccl_calls.h"
#include "broadcast/sync_meeting.h"
#include "broadcast/sync_run.h"
#include "broadcast/sync_watch.h"
#include "broadcast/wire_thread.h"
#include "dbg/weight_broadcaster.h"
#include "distributed/backends.h"

namespace dbg {

struct WeightBroadcaster::Impl {
  using SyncRun = broadcast::SyncRun;
  using Clock = std::chrono::steady_clock;

  /// The group that buckets go over, and the sync that made it.
  struct Group {
    distributed::MadeHalf half;
    c10::intrusive_ptr<distributed::TrackedStore> keys;
    std::int64_t generation = -1;
    std::shared_ptr<broadcast::NcclCalls> nccl;  ///< null for the transport gloo
    std::vector<void*> nccl_memory;              ///< of `nccl`, kept from sync to sync
  };

  BroadcastOptions options;
  WorkerRole role = WorkerRole::actor;
  WorkerPlace place;
  c10::intrusive_ptr<distributed::TrackedStore> keys;  ///< has a caller of its own
  std::shared_ptr<broadcast::SyncContext> context;
  std::unique_ptr<broadcast::SyncMeeting> meeting;
  std::optional<Group> group;
  broadcast::BucketMemory memory;
  std::map<std::string, std::uint64_t> digests;  ///< by weight, of the last sync with per-weight digests
  std::atomic<std::int64_t> version{-1};
  std::atomic<bool> is_torn{false};
  bool is_final = false;
  pid_t owner_pid = ::getpid();
  broadcast::SyncId last_sync;
  bool has_failed_last = false;
  bool has_lost_last = false;  ///< somebody did not answer any more: they will never all be through with it
  bool is_last_done = false;  ///< on the root: all have said that they are through with it

  /// For tests: puts something between a sync and its transport, or between that and gloo.
  std::function<std::shared_ptr<broadcast::Transport>(std::shared_ptr<broadcast::Transport>)> wrap_transport;
  std::function<c10::intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Backend>)> wrap_backend;
  /// How long the wire's thread may take to end once it was told to; tests shorten it.
  std::chrono::milliseconds second_deadline{std::chrono::seconds(10)};

  bool is_root() const { return place.rank == 0; }
  bool is_in_group() const { return place.rank >= 0; }
  broadcast::CutRules cut_rules() const { return {options.bucket_bytes, 256}; }
  std::string describe() const;

  /// Throws: ConfigError for none.
  void set_store(const c10::intrusive_ptr<c10d::Store>& store, const std::string& endpoint);
  /// Throws unless this worker may sync now by the call of `wanted` role.
  void require(WorkerRole wanted) const;
  SyncReport send(WeightSource& source, std::optional<std::int64_t> wanted_version);
  SyncReport receive(WeightSink& sink);
  void finalize() noexcept;

  /// All are there, of one opinion, and the root has said what is to be done.
  /// Throws: SyncError before the run is there; afterwards what the caller hands to fail_sync.
  std::shared_ptr<SyncRun> meet(const broadcast::SyncHello& hello, Clock::time_point began, SyncReport& report);
  void begin(SyncRun& run, std::optional<std::int64_t> wanted_version, SyncReport& report);
  void make_group(const SyncRun& run);
  void make_transport(SyncRun& run);
  /// The bytes are through on this rank: waits until they are on all, and the root says that they count. Returns when
  /// they do, whatever this rank's own clock and connections say by then.
  void agree_on_commit(SyncRun& run);
  /// After the commit: tells the root how it went on this rank, and on the root hears it of all.
  void report_end(SyncRun& run, const std::string& failure, SyncReport& report);
  /// Frees what one sync used and puts the times into the report.
  void end(SyncRun& run, broadcast::WireThread* wire, Clock::time_point began, SyncReport& report);
  /// Both, and notes what changed. What fails now takes nothing back: it is logged.
  void conclude(SyncRun& run, broadcast::WireThread* wire, Clock::time_point began, const std::string& failure,
                std::map<std::string, std::uint64_t> new_digests, SyncReport& report);
  void predict(SyncReport& report) const;
  void note_changes(std::map<std::string, std::uint64_t> now, SyncReport& report);

  /// Inside a catch block: agrees with the others on the cause and ends the wire's thread. The caller cleans up its
  /// source or sink, then calls end_failed.
  broadcast::SyncCause fail(SyncRun& run, broadcast::WireThread* wire);
  /// Frees what a failed sync used, tells the root that this rank is through with it, and throws.
  [[noreturn]] void end_failed(std::shared_ptr<SyncRun> run, std::unique_ptr<broadcast::WireThread> wire,
                               const broadcast::SyncCause& cause, Clock::time_point began);
  [[noreturn]] void throw_failure(const broadcast::SyncCause& cause, Clock::time_point began) const;
  void drop_group() noexcept;
};

/// The way of dbg's own tests into a broadcaster.
struct broadcast::BroadcasterAccess {
  static WeightBroadcaster::Impl& impl(WeightBroadcaster& broadcaster) noexcept { return *broadcaster.impl_; }
};
inline auto& impl_of(WeightBroadcaster& broadcaster) noexcept {
  return broadcast::BroadcasterAccess::impl(broadcaster);
}

}  // namespace dbg
