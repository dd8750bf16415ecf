// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How the workers of a sync meet in the store, before the bytes and after them. Knows nothing of weights.
//
// In the broadcaster's store, workers numbered with actors first:
//   meta/<id>               a worker's metadata, when there is no driver
//   hello/<id>              what a worker brings to the next sync (SyncHello); written before the handshake
//   s/<generation>/begin    the root's word: version, and whether the group is made anew
//   s/<generation>/ready/<id>  the bytes are through on that worker
//   s/<generation>/done/<id>   how that worker ended: empty, or why it could not commit
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
/// deadline. Threads: one thread at a time.
class SyncMeeting {
 public:
  SyncMeeting(c10::intrusive_ptr<distributed::TrackedStore> store, std::vector<std::string> who, int worker,
              std::chrono::milliseconds timeout);

  /// All workers are there and pass the same settings. Returns the generation.
  /// Throws: CommError with the missing, or what differs, by role and node.
  std::int64_t meet(const std::string& what, const std::map<std::string, std::string>& settings);

  /// Worker ids `begin` to `end` - 1 have written `name/<id>`; returns what. After `meet` it is there.
  std::vector<std::string> values_of(const std::string& name, int begin, int end);
  void put_own(const std::string& name, const std::string& value);
  void forget_own(const std::string& name);

  void put_begin(std::int64_t generation, const BeginWord& word);
  BeginWord await_begin(std::int64_t generation, const distributed::AbortSignal& signal);

  void put_ready(std::int64_t generation);
  void await_all_ready(std::int64_t generation, const distributed::AbortSignal& signal);
  /// Waits until `is_decided` says so.
  void await_verdict(const std::function<bool()>& is_decided, const distributed::AbortSignal& signal) const;

  void put_done(std::int64_t generation, const std::string& failure);
  /// By worker. A worker that says nothing until the deadline: nullopt.
  std::vector<std::optional<std::string>> await_all_done(std::int64_t generation);

  /// Deletes this worker's keys of that sync, once all have begun the next.
  void forget(std::int64_t generation);
  /// Deletes all workers' keys of it; for the root, when all have said that they are done.
  void forget_of_all(std::int64_t generation);

  const std::vector<std::string>& who() const noexcept { return who_; }

 private:
  std::vector<std::string> keys_of_others(std::int64_t generation, const std::string& name) const;
  std::string await(const std::string& key, int worker, const distributed::AbortSignal& signal);

  c10::intrusive_ptr<distributed::TrackedStore> store_;
  std::vector<std::string> who_;
  int worker_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<distributed::TrackedStore> handshake_keys_;
};

}  // namespace dbg::broadcast
