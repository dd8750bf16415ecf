// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How the ranks of a sync agree that it failed and why: one cause in the store, a thread on each rank that looks for
// it, and a roll-call that tells who is silent.
//
// Under the sync's own prefix (SyncId::key) in the broadcaster's store; workers are numbered, actors first:
//   news         there is a roll or a cause: the one key that all ask for again and again
//   verdict      how the sync ends: `commit`, written by the root, or the one cause of its failure (SyncCause as JSON);
//                who comes first writes it
//   roll         the worker that asks who is there
//   here/<id>    the answer of a worker: what it is doing
//   pulled/<id>  how many weights an actor had begun to take from its source when it learnt of the failure
//   moves        a counter that rises now and then as long as buckets move on any rank
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "broadcast/sync_id.h"
#include "dbg/error.h"
#include "distributed/abort_signal.h"
#include "distributed/tracked_store.h"

namespace dbg::broadcast {

/// Why a sync failed: the same on all ranks.
struct SyncCause {
  CommErrorKind kind = CommErrorKind::broken;
  std::string text{};
  std::string advice{};
  std::vector<int> workers{};  ///< those it is about

  std::string to_json() const;
  /// For what is no cause the text itself is the cause; a store may hold anything.
  static SyncCause from_json(const std::string& text);
};

/// What a worker is doing, for those who ask who holds the sync up.
/// Threads: safe to call from any thread.
class Activity {
 public:
  /// `is_foreign`: the caller's code runs, in which dbg can't end a wait.
  void set(std::string what, bool is_foreign = false);
  /// How many buckets are through on this rank.
  void set_buckets(std::int64_t count);
  std::int64_t buckets() const;
  /// `takes weight 3 from its source, since 1.2 s, 2 buckets are through`.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string what_ = "idle";
  bool is_foreign_ = false;
  std::int64_t buckets_ = 0;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// Counts what is taken from a source, and freezes when the sync has failed: actors then take equally many, so that a
/// source that is a collective leaves nobody waiting.
/// Threads: safe to call from any thread.
class PullCount {
 public:
  /// Begins one more; false when it is frozen.
  bool begin();
  /// Begins one more although it is frozen.
  void begin_frozen();
  std::int64_t freeze();
  std::int64_t count() const;
  void reset();

 private:
  mutable std::mutex mutex_;
  std::int64_t count_ = 0;
  bool is_frozen_ = false;
};

/// How often each of so many workers asks the store for news: every 50 ms, and with hundreds of them less often, so
/// that a store hears about as much of any number.
std::chrono::milliseconds watch_period(int num_workers);

/// Watches one worker's syncs, one after the other.
///
/// The thread asks the store through a client of its own, for one key, and only while a sync is under way. Once a sync
/// is about to fail, a store that says nothing is waited for shortly only: the limit of `store`'s calls is this watch's
/// to set. Threads: safe to call from any thread, except that syncs begin and end on one.
class SyncWatch {
 public:
  /// `is_actor`: answers a failure with its pull count.
  SyncWatch(const c10::intrusive_ptr<distributed::TrackedStore>& store, int worker, int num_workers, bool is_actor);
  ~SyncWatch();
  SyncWatch(const SyncWatch&) = delete;
  SyncWatch& operator=(const SyncWatch&) = delete;

  /// A sync begins. The signal is fresh: it ends what waits when this sync fails.
  std::shared_ptr<distributed::AbortSignal> begin(const SyncId& sync);
  void end();

  /// This worker fails for this cause. Returns the cause that counts, which is the first one that anybody wrote;
  /// nullopt when the root has decided to commit before. A store that is down or silent leaves the own one.
  std::optional<SyncCause> fail(const SyncId& sync, const SyncCause& own);

  /// The same where a commit may have been decided: whether it was, once the store says so.
  /// Throws: what the store throws; nothing is known then.
  bool settle(const SyncId& sync, const SyncCause& own);

  /// The sync is about to fail: from now on until the next begin, the store gets little time to answer.
  void hurry();

  /// The root: the sync is to be committed. The cause when somebody failed before.
  /// Throws: what the store throws.
  std::optional<SyncCause> decide_commit(const SyncId& sync);

  /// How the sync ends, as far as it is decided.
  struct Verdict {
    bool is_decided = false;
    std::optional<SyncCause> cause{};  ///< nullopt, once it is decided: it is committed
  };
  Verdict verdict(const SyncId& sync);

  /// Whether this worker is to call the roll: one does for all, or thousands that lose patience together would each
  /// read what all the others say. The rest hear of its outcome by the verdict. Throws: what the store throws.
  bool may_call_roll(const SyncId& sync);

  /// Who does not answer within `limit`, and what the others are doing.
  struct Roll {
    std::vector<int> silent;
    std::vector<std::string> answers;  ///< by worker; empty: silent, or the own
  };
  Roll call_roll(const SyncId& sync, std::chrono::milliseconds limit);

  /// The most that any actor of `num_actors` had begun to take; those that say nothing within `limit` don't count.
  std::int64_t most_pulled(const SyncId& sync, int num_actors, std::chrono::milliseconds limit);

  Activity& activity() noexcept { return activity_; }
  PullCount& pulls() noexcept { return pulls_; }

  /// Deletes this worker's keys of that sync, once all have begun the next; `verdict` too when `is_root`.
  void forget(const SyncId& sync, bool is_root);

 private:
  /// How the sync ends: `word`, unless somebody has written another before. The root deletes it, and what else all
  /// write.
  std::string write_verdict(const SyncId& sync, const std::string& word);
  void announce(const SyncId& sync);
  void watch();
  void look();
  /// Puts a worker's key, unless the sync's keys are being forgotten.
  void tell(const SyncId& sync, std::string_view name, const std::string& value);
  void take_back_if_forgotten(const SyncId& sync, const std::string& key);

  const c10::intrusive_ptr<distributed::TrackedStore> store_;        // of the callers' threads
  const c10::intrusive_ptr<distributed::TrackedStore> watch_store_;  // of the own thread
  const std::chrono::milliseconds usual_limit_;                      // of store_'s calls
  const int worker_;
  const int num_workers_;
  const bool is_actor_;
  Activity activity_;
  PullCount pulls_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;                           // under mutex_
  SyncId sync_;                                       // under mutex_; generation -1: no sync is under way
  SyncId forgotten_;                                  // under mutex_; the last whose keys were deleted
  std::shared_ptr<distributed::AbortSignal> signal_;  // under mutex_
  bool has_answered_ = false;                         // under mutex_
  bool has_told_pulls_ = false;                       // under mutex_
  std::int64_t told_buckets_ = 0;                     // of the own thread
  std::chrono::steady_clock::time_point told_at_{};   // of the own thread
  std::thread thread_;
};

}  // namespace dbg::broadcast
