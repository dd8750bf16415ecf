// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The way of one call: turn, meeting, exchange, conclusion.
#include "graft/session.h"

#include <utility>

#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dump/stream_capture.h"
#include "graft/framed_wire.h"
#include "graft/part_name.h"
#include "graft/python_wire.h"
#include "graft/receive.h"
#include "graft/value_text.h"

namespace dbg::graft {
namespace {

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

Session::Session(std::shared_ptr<const GraftConfig> config, const Participant& self)
    : config_(std::move(config)),
      rank_(self.rank()),
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

bool Session::is_off() const {
  const std::lock_guard lock(mutex_);
  return state_.phase == GraftPhase::off;
}

void Session::begin_offline() {
  const std::lock_guard lock(mutex_);
  if (state_.phase == GraftPhase::waiting) state_.phase = GraftPhase::grafting;
}

void Session::refuse(const std::string& cause) {
  const Turn turn(*this);
  turn_off(cause);
}

CallResult Session::off_result() const {
  const std::lock_guard lock(mutex_);
  return {CallOutcome::off, state_.cause};
}

bool Session::is_sender(const SessionCall& call) const noexcept {
  return (config_->role == GraftRole::baseline) == (call.direction == GraftDirection::b2t);
}

CallResult Session::run(const SessionCall& call) {
  std::optional<CallResult> result;
  Taken taken;
  {
    const Turn turn(*this);
    if (const auto cause = base::run_fenced([&] { result = take_part(call, taken); })) {
      // What came here left the wire at a place that nobody knows.
      turn_off(*cause);
      result = CallResult{CallOutcome::off, *cause};
    }
    leave_if_closed();
  }
  if (!result) {
    const auto cause = base::run_fenced(
        [&] { result = is_sender(call) ? conclude_sender(call, taken) : conclude_receiver(call, std::move(taken)); });
    if (cause) result = CallResult{CallOutcome::failed, *cause};
  }
  count(result->outcome);
  return *std::move(result);
}

std::optional<CallResult> Session::take_part(const SessionCall& call, Taken& taken) {
  if (is_off()) return off_result();
  if (!meeting_) {
    if (auto result = meet_others()) return result;
  }
  taken = exchange(call);
  {
    const std::lock_guard lock(mutex_);
    state_.counters.bytes_sent += taken.exchanged.bytes_sent;
    state_.counters.bytes_received += taken.exchanged.bytes_received;
  }
  if (taken.exchanged.met) return std::nullopt;
  if (const auto number = said_.hit("skips " + call.name)) {
    base::log(LogLevel::warning, kPart, "skips '{}': the sides are at different calls: {}{}", call.name,
              taken.exchanged.note, times_text(number));
  }
  return CallResult{CallOutcome::out_of_step, taken.exchanged.note};
}

std::optional<CallResult> Session::meet_others() {
  Meeting met = meet(config_, current_participant(), abort_);
  const std::string label = distributed::cpu_half_of(*met.group).label;
  meeting_ = std::move(met);
  const std::lock_guard lock(mutex_);
  // Closed meanwhile: it is left where the turn ends.
  if (is_closed_) return CallResult{CallOutcome::off, state_.cause};
  state_.phase = GraftPhase::grafting;
  state_.peers = meeting_->is_all_dbg ? "dbg" : "python";
  state_.label = label;
  return std::nullopt;
}

std::uint64_t Session::next_occurrence(const SessionCall& call) {
  if (step_ != call.interception.step) {
    step_ = call.interception.step;
    occurrences_.clear();
  }
  return occurrences_[call.name]++;
}

Session::Taken Session::exchange(const SessionCall& call) {
  ExchangeRequest request{call.direction, {}, call.interception.tags};
  request.name = call.name;
  request.step = call.interception.step;
  request.occurrence = next_occurrence(call);
  if (is_stream_capturing()) {
    request.own.reason = kCapturing;
  } else if (is_sender(call)) {
    request.own = contribution_of(call.interception.value, call.interception.extras, call.place);
  } else {
    request.own.reason = why_not_writable(call.interception.value);
    if (request.own.reason.empty()) request.own.state = ContributionState::value;
  }
  if (!meeting_->is_all_dbg) warn_of_shift(call);
  distributed::GroupHalf& half = distributed::cpu_half_of(*meeting_->group);
  const Wire wire{half, sides_, config_->max_bytes, meeting_->max_bytes, config_->timeout, &abort_};
  Taken taken;
  taken.exchanged = meeting_->is_all_dbg ? exchange_framed(wire, request) : exchange_with_python(wire, request);
  taken.reason = request.own.reason;
  taken.given = request.own.tensor;
  return taken;
}

void Session::warn_of_shift(const SessionCall& call) {
  const c10::IValue& value = call.interception.value;
  if (value.isTensor() && value.toTensor().defined()) return;
  if (std::exchange(has_warned_of_shift_, true)) return;
  base::log(
      LogLevel::warning, kPart,
      "'{}' is no tensor here; a Python rank takes no part in a call at which it has none either. If so, this call "
      "meets its next one, and so does each that follows: narrow the filters on both sides",
      call.name);
}

CallResult Session::conclude_sender(const SessionCall& call, const Taken& taken) {
  const std::string& why = taken.exchanged.not_sent;
  if (!why.empty()) {
    if (const auto number = said_.hit("nothing is sent: " + why)) {
      base::log(LogLevel::warning, kPart, "send role={} dir={} tags={}: nothing is sent: {}{}", to_text(config_->role),
                to_text(call.direction), value_text(call.interception.tags), why, times_text(number));
    }
    return {CallOutcome::empty, why};
  }
  if (base::log_enabled(LogLevel::info)) {
    base::log(LogLevel::info, kPart, "send role={} dir={} tags={} extras={} tensor={{{}}}", to_text(config_->role),
              to_text(call.direction), value_text(call.interception.tags), extras_text(call.interception),
              info_text(taken.given, call.interception.value.toTensor().device()));
  }
  return {CallOutcome::sent, {}};
}

CallResult Session::conclude_receiver(const SessionCall& call, Taken taken) {
  for (const Contribution& sender : taken.exchanged.senders) {
    if (sender.lost.empty()) continue;
    if (const auto number = said_.hit("lost: " + sender.lost)) {
      base::log(LogLevel::warning, kPart, "tags={}: the extras of a sender are taken without {}{}",
                value_text(call.interception.tags), sender.lost, times_text(number));
    }
  }
  ReceiveResult result{ReceiveOutcome::empty, formatted("the value here is {}", taken.reason)};
  if (taken.reason.empty()) {
    ReceiveRequest request{*config_, call.interception.tags, call.interception.value};
    request.direction = call.direction;
    request.receiver_count = sides_.count(false, call.direction);
    request.receiver_rank = rank_;
    request.place = call.place;
    request.senders = std::move(taken.exchanged.senders);
    result = receive(std::move(request));
  }
  if (result.outcome == ReceiveOutcome::grafted) return {CallOutcome::grafted, {}};
  if (const auto number = said_.hit("recv: " + result.cause)) {
    base::log(LogLevel::error, kPart, "recv role={} dir={} tags={}: the target keeps its value: {}{}",
              to_text(config_->role), to_text(call.direction), value_text(call.interception.tags), result.cause,
              times_text(number));
  }
  switch (result.outcome) {
    case ReceiveOutcome::refused:
      return {CallOutcome::refused, std::move(result.cause)};
    case ReceiveOutcome::empty:
      return {CallOutcome::empty, std::move(result.cause)};
    default:
      return {CallOutcome::failed, std::move(result.cause)};
  }
}

void Session::leave() {
  if (meeting_) meeting_->leave();
  meeting_.reset();
}

void Session::leave_if_closed() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) return;
  }
  leave();
}

void Session::turn_off(const std::string& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (state_.phase == GraftPhase::off) return;
    state_.phase = GraftPhase::off;
    state_.cause = cause;
  }
  // Before anything else: what a peer has posted must never meet a post of ours.
  leave();
  base::log(LogLevel::error, kPart, "GRAFTING IS OFF for the rest of this run: {}", cause);
}

void Session::end_calls() noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
      if (state_.phase != GraftPhase::off) {
        state_.phase = GraftPhase::off;
        state_.cause = "it was closed";
      }
    }
    abort_.raise("the Grafter was closed");
  } catch (...) {
    base::log(LogLevel::error, kPart, "a Grafter was not closed in order: {}", base::describe_current_exception());
  }
}

void Session::close() noexcept {
  end_calls();
  try {
    std::unique_lock lock(mutex_);
    if (!turn_ended_.wait_for(lock, kCloseBound, [&] { return !has_turn_; })) return;
    has_turn_ = true;
    lock.unlock();
    leave();
    lock.lock();
    has_turn_ = false;
    lock.unlock();
    turn_ended_.notify_all();
  } catch (...) {
    base::log(LogLevel::error, kPart, "a Grafter was not closed in order: {}", base::describe_current_exception());
  }
}

}  // namespace dbg::graft
