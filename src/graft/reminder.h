// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Says who is missing while the sides meet, and when a peer has come with another backend.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "dbg/grafter.h"
#include "distributed/tracked_store.h"
#include "graft/exchange.h"

namespace dbg::graft {

/// While it lives, a thread of its own says so, by looking for what gloo (and a Python peer's nccl) leaves in the
/// store. It asks by the client that the meeting uses, and waits for nothing there: for one of its own, torch's server
/// would look up its host's name, which takes seconds where the resolver does not answer, and serve nobody meanwhile.
/// Must not outlive `config` and the store.
/// Threads: safe to call from any thread.
class Reminder {
 public:
  struct Periods {
    std::chrono::milliseconds look{500};  ///< between looks for nccl; the thread's end waits about as long
    std::chrono::milliseconds say{10000};
  };

  Reminder(const GraftConfig& config, const Sides& sides, const Periods& periods);
  Reminder(const GraftConfig& config, const Sides& sides) : Reminder(config, sides, Periods()) {}
  ~Reminder();
  Reminder(const Reminder&) = delete;
  Reminder& operator=(const Reminder&) = delete;

  /// From here on the store can be asked.
  void look_into(const c10::intrusive_ptr<c10d::Store>& store);

  /// Whether somebody was seen to use NCCL.
  bool saw_nccl() const;

 private:
  void run();
  void look(const c10::intrusive_ptr<distributed::TrackedStore>& keys, bool is_due);
  void look_for_nccl(distributed::TrackedStore& keys);
  void say_who_is_missing(distributed::TrackedStore& keys);

  const GraftConfig& config_;
  const Sides sides_;
  const Periods periods_;
  const std::chrono::steady_clock::time_point began_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;                                // under mutex_
  c10::intrusive_ptr<distributed::TrackedStore> keys_;  // under mutex_
  bool saw_nccl_ = false;                               // under mutex_; written by thread_ only
  std::thread thread_;
};

}  // namespace dbg::graft
