// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One participant's part in grafting with a live peer: when it joins, its place in the protocol, and its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/fence.h"
#include "dbg/grafter.h"
#include "dbg/participant.h"
#include "distributed/abort_signal.h"
#include "graft/exchange.h"
#include "graft/meeting.h"

namespace dbg::graft {

/// What became of one call, for the counters and for strict mode.
enum class CallOutcome { sent, grafted, failed, refused, empty, out_of_step, ambiguous, missing, off };

struct CallResult {
  CallOutcome outcome = CallOutcome::off;
  std::string cause = {};  ///< what went wrong; empty where nothing did
};

/// One matching dump.
struct SessionCall {
  const Interception& interception;
  GraftDirection direction = GraftDirection::b2t;
  std::string name = {};
  GraftPlace place = {};
};

/// Threads: calls of several threads take turns; `close` and `state` may come at any time.
class Session {
 public:
  Session(std::shared_ptr<const GraftConfig> config, std::shared_ptr<const Participant> self);
  /// As `close`.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Grafts. Waits for the other ranks, at most the configuration's timeout and a second. Never throws but for a
  /// cancelled thread.
  CallResult run(const SessionCall& call);

  /// Counts a call that was none of the protocol's.
  void count(CallOutcome outcome) noexcept;

  GraftState state() const;

  /// Ends a call that waits, and leaves the group. Never throws.
  void close() noexcept;

 private:
  class Turn;
  CallResult run_in_turn(const SessionCall& call);
  CallResult off_result() const;
  Exchanged exchange(const SessionCall& call, bool is_sender);
  CallResult conclude_sender(const SessionCall& call, const Exchanged& exchanged);
  CallResult conclude_receiver(const SessionCall& call, Exchanged exchanged);
  void turn_off(const std::string& cause);
  std::uint64_t next_occurrence(const SessionCall& call);

  const std::shared_ptr<const GraftConfig> config_;
  const std::shared_ptr<const Participant> self_;
  const Sides sides_;
  distributed::AbortSignal abort_;

  // Of whoever has the turn.
  std::optional<Meeting> meeting_;
  std::uint64_t sequence_ = 0;
  std::int64_t step_ = 0;
  std::map<std::string, std::uint64_t> occurrences_;  // of step_

  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;
  bool has_turn_ = false;   // under mutex_
  bool is_closed_ = false;  // under mutex_
  GraftState state_;        // under mutex_
};

}  // namespace dbg::graft
