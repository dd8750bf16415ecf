// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The way of one call: turn, meeting, exchange, conclusion.
#include "graft/session.h"

#include <utility>

#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dbg/tensor_info.h"
#include "distributed/group_impl.h"
#include "graft/framed_wire.h"
#include "graft/python_wire.h"
#include "graft/receive.h"
#include "graft/value_text.h"

namespace dbg::graft {
namespace {

constexpr std::string_view kPart = "Grafter";
// How long a close waits for a call that it has ended.
constexpr std::chrono::seconds kCloseBound{5};

std::string extras_text(const Interception& interception) {
  return value_text(interception.extras != nullptr ? *interception.extras : c10::IValue());
}

}  // namespace

// While it lives, no other thread of the participant is in a call.
class Session::Turn {
 public:
  explicit Turn(Session& session) : session_(session) {
    std::unique_lock lock(session.mutex_);
    session.turn_ended_.wait(lock, [&] { return !session.has_turn_; });
    session.has_turn_ = true;
  }
  ~Turn() {
    {
      const std::lock_guard lock(session_.mutex_);
      session_.has_turn_ = false;
    }
    session_.turn_ended_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Session& session_;
};

Session::Session(std::shared_ptr<const GraftConfig> config, std::shared_ptr<const Participant> self)
    : config_(std::move(config)),
      self_(std::move(self)),
      sides_{config_->baseline_world_size, config_->target_world_size} {}

Session::~Session() {
  close();
}

void Session::count(CallOutcome outcome) noexcept {
  const std::lock_guard lock(mutex_);
  GraftCounters& counters = state_.counters;
  switch (outcome) {
    case CallOutcome::sent:
      ++counters.sent;
      break;
    case CallOutcome::grafted:
      ++counters.grafted;
      break;
    case CallOutcome::failed:
      ++counters.failed;
      break;
    case CallOutcome::refused:
      ++counters.refused;
      break;
    case CallOutcome::empty:
      ++counters.empty;
      break;
    case CallOutcome::out_of_step:
      ++counters.out_of_step;
      break;
    case CallOutcome::ambiguous:
      ++counters.ambiguous;
      break;
    case CallOutcome::missing:
      ++counters.missing;
      break;
    case CallOutcome::off:
      ++counters.off;
      break;
  }
}

GraftState Session::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

CallResult Session::off_result() const {
  const std::lock_guard lock(mutex_);
  return {CallOutcome::off, state_.cause};
}

CallResult Session::run(const SessionCall& call) {
  const Turn turn(*this);
  CallResult result;
  if (const auto cause = base::run_fenced([&] { result = run_in_turn(call); })) {
    // What came here left the wire at a place that nobody knows.
    turn_off(*cause);
    result = {CallOutcome::off, *cause};
  }
  count(result.outcome);
  return result;
}

CallResult Session::run_in_turn(const SessionCall& call) {
  if (state().phase == GraftPhase::off) return off_result();
  if (!meeting_) {
    meeting_ = meet(*config_, *self_);
    const std::string label = meeting_->group->impl().cpu->state.label;
    const std::lock_guard lock(mutex_);
    state_.phase = GraftPhase::grafting;
    state_.peers = meeting_->is_all_dbg ? "dbg" : "python";
    state_.label = label;
  }
  const int rank = meeting_->group->rank_in_group();
  const bool is_sender = sides_.sends(rank, call.direction);
  Exchanged exchanged = exchange(call, is_sender);
  {
    const std::lock_guard lock(mutex_);
    state_.counters.bytes_sent += exchanged.bytes_sent;
    state_.counters.bytes_received += exchanged.bytes_received;
  }
  if (!exchanged.met) {
    base::log(LogLevel::warning, kPart, "skips '{}': the sides are at different calls: {}", call.name, exchanged.note);
    return {CallOutcome::out_of_step, exchanged.note};
  }
  return is_sender ? conclude_sender(call, exchanged) : conclude_receiver(call, std::move(exchanged));
}

std::uint64_t Session::next_occurrence(const SessionCall& call) {
  if (step_ != call.interception.step) {
    step_ = call.interception.step;
    occurrences_.clear();
  }
  return occurrences_[call.name]++;
}

Exchanged Session::exchange(const SessionCall& call, bool is_sender) {
  ExchangeRequest request;
  request.direction = call.direction;
  request.name = call.name;
  request.step = call.interception.step;
  request.occurrence = next_occurrence(call);
  request.sequence = sequence_++;
  if (is_sender) {
    request.own = contribution_of(call.interception.value, call.interception.extras, call.place);
  } else {
    request.own.reason = why_not_writable(call.interception.value);
    if (request.own.reason.empty()) request.own.state = ContributionState::value;
  }
  const Wire wire{meeting_->group->impl().cpu->state, sides_, config_->max_bytes, config_->timeout, &abort_};
  return meeting_->is_all_dbg ? exchange_framed(wire, request) : exchange_with_python(wire, request);
}

CallResult Session::conclude_sender(const SessionCall& call, const Exchanged& exchanged) {
  if (!exchanged.not_sent.empty()) {
    base::log(LogLevel::warning, kPart, "send role={} dir={} tags={}: nothing is sent: {}", to_text(config_->role),
              to_text(call.direction), value_text(call.interception.tags), exchanged.not_sent);
    return {CallOutcome::empty, exchanged.not_sent};
  }
  if (base::log_enabled(LogLevel::info)) {
    base::log(LogLevel::info, kPart, "send role={} dir={} tags={} extras={} tensor={{{}}}", to_text(config_->role),
              to_text(call.direction), value_text(call.interception.tags), extras_text(call.interception),
              to_text(describe(call.interception.value.toTensor())));
  }
  return {CallOutcome::sent, {}};
}

CallResult Session::conclude_receiver(const SessionCall& call, Exchanged exchanged) {
  ReceiveRequest request{*config_, call.interception.tags, call.interception.value};
  request.direction = call.direction;
  request.receiver_count = sides_.count(false, call.direction);
  request.receiver_rank = self_->rank();
  request.place = call.place;
  request.senders = std::move(exchanged.senders);
  ReceiveResult result = receive(std::move(request));
  if (result.outcome == ReceiveOutcome::grafted) return {CallOutcome::grafted, {}};
  base::log(LogLevel::error, kPart, "recv role={} dir={} tags={}: the target keeps its value: {}",
            to_text(config_->role), to_text(call.direction), value_text(call.interception.tags), result.cause);
  switch (result.outcome) {
    case ReceiveOutcome::refused:
      return {CallOutcome::refused, std::move(result.cause)};
    case ReceiveOutcome::empty:
      return {CallOutcome::empty, std::move(result.cause)};
    default:
      return {CallOutcome::failed, std::move(result.cause)};
  }
}

void Session::turn_off(const std::string& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (state_.phase == GraftPhase::off) return;
    state_.phase = GraftPhase::off;
    state_.cause = cause;
  }
  // Before anything else: what a peer has posted must never meet a post of ours.
  if (meeting_) meeting_->leave();
  meeting_.reset();
  base::log(LogLevel::error, kPart, "GRAFTING IS OFF for the rest of this run: {}", cause);
}

void Session::close() noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_closed_, true)) return;
      if (state_.phase != GraftPhase::off) {
        state_.phase = GraftPhase::off;
        state_.cause = "it was closed";
      }
    }
    abort_.raise("the Grafter was closed");
    std::unique_lock lock(mutex_);
    if (!turn_ended_.wait_for(lock, kCloseBound, [&] { return !has_turn_; })) return;
    has_turn_ = true;  // for good: nobody begins a call any more
    lock.unlock();
    if (meeting_) meeting_->leave();
    meeting_.reset();
    lock.lock();
    has_turn_ = false;
    lock.unlock();
    turn_ended_.notify_all();
  } catch (...) {
    base::log(LogLevel::error, kPart, "a Grafter was not closed in order: {}", base::describe_current_exception());
  }
}

}  // namespace dbg::graft
