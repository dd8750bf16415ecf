// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How the workers of a sync meet in the store, before the bytes and after them. Knows nothing of weights.
//
// In the broadcaster's store, workers numbered with actors first:
//   meta/<id>               a worker's metadata, when there is no driver
//   hello/<id>              what a worker brings to the next sync (SyncHello); written before the handshake
// and of each sync under its own prefix (SyncId::key):
//   begin       the root's word: version, and whether the group is made anew
//   pushed      how many buckets the root has filled, where there are actors that send nothing
//   ready/<id>  the bytes are through on that worker
//   done/<id>   that worker is through with the sync, and how: `ok`, or why it failed
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "broadcast/sync_id.h"
#include "distributed/abort_signal.h"
#include "distributed/rendezvous.h"
#include "distributed/tracked_store.h"

namespace dbg::broadcast {

/// What a worker brings to a sync.
struct SyncHello {
  std::int64_t group = -1;                  ///< the generation that made the group it still has; -1: none
  std::int64_t version = -1;                ///< of the model, as far as it knows
  std::optional<std::uint64_t> manifest{};  ///< hash of what its source will hand out, where that is known
  std::uint64_t num_weights = 0;            ///< in the manifest
  bool fails = false;                       ///< it will say why once the sync has begun

  std::string to_json() const;
  /// Throws: CommError (handshake_mismatch) for what is no hello.
  static SyncHello from_json(const std::string& text);
};

/// The root's word at the begin.
struct BeginWord {
  std::int64_t version = 0;
  bool makes_group = true;
};

/// Thrown when a wait for other workers passes its deadline.
struct MeetingTimeout {
  std::vector<int> missing;
  std::string waited_for;
};

/// One worker's side. Waits poll the store, end by Interrupted when the signal is raised and by MeetingTimeout at the
/// deadline, which those that wait for bytes put off while buckets move on any rank. Threads: one thread at a time.
class SyncMeeting {
 public:
  SyncMeeting(c10::intrusive_ptr<distributed::TrackedStore> store, std::vector<std::string> who, int worker,
              std::chrono::milliseconds timeout);

  /// All workers are there and pass the same settings.
  /// Throws: CommError with the missing, or what differs, by role and node.
  SyncId meet(const std::string& what, const std::map<std::string, std::string>& settings);

  /// Worker ids `begin` to `end` - 1 have written `name/<id>`; returns what. After `meet` it is there.
  std::vector<std::string> values_of(const std::string& name, int begin, int end);
  void put_own(const std::string& name, const std::string& value);
  void forget_own(const std::string& name);

  void put_begin(const SyncId& sync, const BeginWord& word);
  BeginWord await_begin(const SyncId& sync, const distributed::AbortSignal& signal);

  /// The root has filled that many buckets.
  void put_pushed(const SyncId& sync, std::int64_t count);
  /// Waits until it has filled `count`; returns how many it has.
  std::int64_t await_pushed(const SyncId& sync, std::int64_t count, const distributed::AbortSignal& signal);

  void put_ready(const SyncId& sync);
  void await_all_ready(const SyncId& sync, const distributed::AbortSignal& signal);
  /// Waits until `is_decided` says so.
  void await_verdict(const SyncId& sync, const std::function<bool()>& is_decided,
                     const distributed::AbortSignal& signal);

  void put_done(const SyncId& sync, const std::string& failure);
  /// By worker. A worker that says nothing within `limit`: nullopt.
  std::vector<std::optional<std::string>> await_all_done(const SyncId& sync, std::chrono::milliseconds limit);

  /// Deletes this worker's keys of that sync, once all have begun the next.
  void forget(const SyncId& sync);
  /// Deletes all workers' keys of it; for the root, when all have said that they are done.
  void forget_of_all(const SyncId& sync);

  const std::vector<std::string>& who() const noexcept { return who_; }

 private:
  class Patience;
  std::vector<std::string> keys_of_others(const SyncId& sync, const std::string& name) const;

  c10::intrusive_ptr<distributed::TrackedStore> store_;
  std::vector<std::string> who_;
  int worker_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<distributed::TrackedStore> handshake_keys_;
};

}  // namespace dbg::broadcast
