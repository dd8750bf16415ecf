// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One participant's part in grafting with a live peer: when it joins, its place in the protocol, and its end.
#pragma once

#include <condition_variable>
#include <cstdint>
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
#include "graft/repeated_lines.h"

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

/// Threads: calls of several threads take turns at the wire; what follows it (the transform, the copy) holds up nobody.
/// `end_calls`, `close` and `state` may come at any time. In a forked child nothing of it may be touched, its
/// destructor included.
class Session {
 public:
  /// Keeps nothing of `self` but its rank.
  Session(std::shared_ptr<const GraftConfig> config, const Participant& self);
  /// As `close`.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Grafts, for the calling participant. Waits for the other ranks, at most the configuration's timeout and a second;
  /// in the first call so long for the meeting, and then again; and before that for calls of the participant's other
  /// threads. Never throws but for a cancelled thread.
  CallResult run(const SessionCall& call);

  /// Counts a call that was none of the protocol's.
  void count(CallOutcome outcome) noexcept;

  GraftState state() const;

  bool is_off() const;

  /// There is no peer to meet: the values come from a folder.
  void begin_offline();

  /// Grafting is over for this participant before it began.
  void refuse(const std::string& cause);

  /// Ends a call that waits, and those that come. Never throws.
  void end_calls() noexcept;

  /// The same, and leaves the group: here, or where the call that is at the wire ends. Never throws.
  void close() noexcept;

 private:
  class Turn;
  // What a call brings from the wire.
  struct Taken {
    std::string reason;  // why this rank had no tensor to give, or to put one into; empty: it had
    at::Tensor given;    // of a sender, on the host
    Exchanged exchanged;
  };
  /// The exclusive part. Its result is there already when the call came to nothing.
  std::optional<CallResult> take_part(const SessionCall& call, Taken& taken);
  std::optional<CallResult> meet_others();
  CallResult off_result() const;
  bool is_sender(const SessionCall& call) const noexcept;
  Taken exchange(const SessionCall& call);
  CallResult conclude_sender(const SessionCall& call, const Taken& taken);
  CallResult conclude_receiver(const SessionCall& call, Taken taken);
  /// The Python wire pairs calls by their order alone.
  void warn_of_shift(const SessionCall& call);
  void turn_off(const std::string& cause);
  void leave();
  void leave_if_closed();
  std::uint64_t next_occurrence(const SessionCall& call);

  const std::shared_ptr<const GraftConfig> config_;
  const int rank_;  // on its side
  const Sides sides_;
  distributed::AbortSignal abort_;
  RepeatedLines said_;

  // Of whoever has the turn.
  std::optional<Meeting> meeting_;
  std::int64_t step_ = 0;
  std::map<std::string, std::uint64_t> occurrences_;  // of step_
  bool has_warned_of_shift_ = false;

  mutable std::mutex mutex_;
  std::condition_variable turn_ended_;
  bool has_turn_ = false;   // under mutex_
  bool is_closed_ = false;  // under mutex_
  GraftState state_;        // under mutex_
};

}  // namespace dbg::graft
