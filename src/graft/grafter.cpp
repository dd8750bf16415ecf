// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which dumps are grafted, and by whom: a session a participant, or a folder of records.
#include "dbg/grafter.h"

#include <cxxabi.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dbg/participant.h"
#include "dump/filter.h"
#include "dump/fork_generation.h"
#include "dump/stream_capture.h"
#include "graft/offline.h"
#include "graft/part_name.h"
#include "graft/place.h"
#include "graft/receive.h"
#include "graft/repeated_lines.h"
#include "graft/session.h"
#include "graft/transforms.h"
#include "graft/value_text.h"

namespace dbg {
namespace {

using graft::CallOutcome;
using graft::CallResult;

// A dump's tags, and the step.
class CallTags final : public TagLookup {
 public:
  explicit CallTags(const Interception& interception) : interception_(interception) {}

  TagView find(std::string_view key) const noexcept override {
    if (const TagValue* value = interception_.tags.find(key)) return value->view();
    if (key == "step") return interception_.step;
    return {};
  }

 private:
  const Interception& interception_;
};

// No text: matches nothing, where a Filter would match everything.
class Matcher {
 public:
  explicit Matcher(const std::string& text)
      : is_given_(text.find_first_not_of(" \t\n\v\f\r") != std::string::npos), filter_(Filter::parse(text)) {}

  bool matches(const TagLookup& tags) const noexcept { return is_given_ && filter_.matches(tags); }

 private:
  bool is_given_;
  Filter filter_;
};

GraftConfig validated(GraftConfig config) {
  config.validate();
  return config;
}

std::string name_of(const Interception& interception) {
  const TagValue* const name = interception.tags.find("name");
  return name != nullptr ? python_text(name->view()) : std::string();
}

GraftPlace place_of(const Interception& interception) {
  GraftPlace place;
  place.dims = std::string(interception.dims);
  if (interception.parallel_state) place.parallel = interception.parallel_state();
  return graft::merged(graft::place_in(interception.extras != nullptr ? *interception.extras : c10::IValue()), place);
}

}  // namespace

struct Grafter::Impl {
  explicit Impl(GraftConfig told)
      : config(std::make_shared<const GraftConfig>(validated(std::move(told)))),
        b2t(config->b2t_filter),
        t2b(config->t2b_filter) {
    if (config->role == GraftRole::file) offline = std::make_unique<graft::OfflineSource>(config->folder);
  }

  ~Impl() {
    // The parent's threads may be inside a session: in a forked child none is touched, its destructor included.
    if (fork_generation() != generation) static_cast<void>(new auto(std::move(seats)));
  }

  /// The calling participant's; made where there is none. Null once closed.
  std::shared_ptr<graft::Session> session_of(const std::shared_ptr<const Participant>& participant);

  // The way of one dump; null where no filter matches.
  void intercept(const Interception& interception);
  CallResult refuse_ambiguous(graft::Session& session, const Interception& interception);
  CallResult take_from_folder(graft::Session& session, const Interception& interception, GraftPlace place);
  void complain(const std::string& kind, const Interception& interception, const std::string& line);
  GraftState state();
  void close() noexcept;

  struct Seat {
    std::weak_ptr<const Participant> participant;
    std::shared_ptr<graft::Session> session;
  };

  const std::shared_ptr<const GraftConfig> config;
  const Matcher b2t;
  const Matcher t2b;
  const unsigned generation = fork_generation();
  std::unique_ptr<graft::OfflineSource> offline;  // null with a live peer
  graft::RepeatedLines said;

  std::mutex mutex;
  std::map<std::uint64_t, Seat> seats;       // under mutex, by participant
  std::map<int, std::uint64_t> rank_owners;  // under mutex: the participant that came first as this rank
  bool is_closed = false;                    // under mutex
};

std::shared_ptr<graft::Session> Grafter::Impl::session_of(const std::shared_ptr<const Participant>& participant) {
  std::vector<std::shared_ptr<graft::Session>> left;  // their ends wait for others: outlives the lock
  std::shared_ptr<graft::Session> session;
  bool is_second = false;
  {
    const std::lock_guard lock(mutex);
    if (is_closed) return nullptr;
    const auto found = seats.find(participant->id());
    if (found != seats.end()) return found->second.session;
    for (auto seat = seats.begin(); seat != seats.end();) {
      if (seat->second.participant.expired()) {
        left.push_back(std::move(seat->second.session));
        seat = seats.erase(seat);
      } else {
        ++seat;
      }
    }
    session = std::make_shared<graft::Session>(config, *participant);
    seats[participant->id()] = {participant, session};
    is_second = !offline && !rank_owners.emplace(participant->rank(), participant->id()).second;
  }
  if (is_second) {
    session->refuse(
        formatted("another Participant object has grafted as rank {} already, and the other side has met "
                  "that one: keep one for the whole run",
                  participant->rank()));
  }
  return session;
}

void Grafter::Impl::complain(const std::string& kind, const Interception& interception, const std::string& line) {
  const auto number = said.hit(kind);
  if (number == 0) return;
  base::log(LogLevel::error, graft::kPart, "tags={}: {}{}", graft::value_text(interception.tags), line,
            graft::times_text(number));
}

void Grafter::Impl::intercept(const Interception& interception) {
  // In a forked child a thread of the parent may hold the locks, and the group is the parent's.
  if (fork_generation() != generation) return;
  const CallTags tags(interception);
  const bool is_b2t = b2t.matches(tags);
  const bool is_t2b = t2b.matches(tags);
  if (!is_b2t && (!is_t2b || offline)) return;
  const std::shared_ptr<graft::Session> session = session_of(current_participant());
  if (!session) return;
  CallResult result;
  if (is_b2t && is_t2b) {
    result = refuse_ambiguous(*session, interception);
  } else if (session->is_off()) {
    result = {CallOutcome::off, session->state().cause};
    session->count(result.outcome);
  } else {
    // The plugins are foreign code: what they throw must not keep this rank from its part.
    GraftPlace place;
    const auto fault = base::run_fenced([&] { place = place_of(interception); });
    if (offline) {
      result = take_from_folder(*session, interception, std::move(place));
    } else {
      const GraftDirection direction = is_b2t ? GraftDirection::b2t : GraftDirection::t2b;
      result = session->run({interception, direction, name_of(interception), std::move(place)});
    }
    if (fault) {
      complain("place " + *fault, interception, formatted("this rank's place is not known: {}", *fault));
      if (result.cause.empty()) result.cause = *fault;
    }
  }
  if (config->strict && !result.cause.empty()) throw Error("graft of '" + name_of(interception) + "': " + result.cause);
}

CallResult Grafter::Impl::refuse_ambiguous(graft::Session& session, const Interception& interception) {
  session.count(CallOutcome::ambiguous);
  complain("ambiguous", interception,
           "grafter_b2t_filter and grafter_t2b_filter both match; narrow one, on both sides. Nothing is grafted here.");
  return {CallOutcome::ambiguous, "both filters match: it would flow both ways"};
}

CallResult Grafter::Impl::take_from_folder(graft::Session& session, const Interception& interception,
                                           GraftPlace place) {
  session.begin_offline();
  const auto participant = current_participant();
  CallResult result{CallOutcome::grafted, {}};
  const bool is_identity = config->transform.empty() || config->transform == "identity" || config->transform == "cast";
  graft::OfflineAnswer answer = offline->find(
      {interception.tags, interception.step, participant->rank(), /*wants_all_ranks=*/!is_identity}, config->max_bytes);
  if (answer.senders.empty()) {
    result = {CallOutcome::missing, answer.missing};
  } else if (is_stream_capturing()) {
    result = {CallOutcome::empty, formatted("the value here is {}", graft::kCapturing)};
  } else {
    graft::ReceiveRequest request{*config, interception.tags, interception.value};
    // One's own record is for oneself alone, whatever others there are.
    request.receiver_rank = is_identity ? 0 : participant->rank();
    request.receiver_count = is_identity ? 1 : participant->world_size();
    request.place = std::move(place);
    request.senders = std::move(answer.senders);
    const graft::ReceiveResult received = graft::receive(std::move(request));
    result.cause = received.cause;
    if (received.outcome == graft::ReceiveOutcome::failed) result.outcome = CallOutcome::failed;
    if (received.outcome == graft::ReceiveOutcome::refused) result.outcome = CallOutcome::refused;
    if (received.outcome == graft::ReceiveOutcome::empty) result.outcome = CallOutcome::empty;
  }
  if (!result.cause.empty()) {
    const bool is_missing = result.outcome == CallOutcome::missing;
    complain(is_missing ? "missing " + name_of(interception) : result.cause, interception,
             formatted("recv role=file: the target keeps its value: {}", result.cause));
  }
  session.count(result.outcome);
  return result;
}

GraftState Grafter::Impl::state() {
  const std::lock_guard lock(mutex);
  const auto found = seats.find(current_participant()->id());
  if (found != seats.end()) return found->second.session->state();
  GraftState state;
  if (is_closed) {
    state.phase = GraftPhase::off;
    state.cause = "it was closed";
  }
  return state;
}

void Grafter::Impl::close() noexcept {
  if (fork_generation() != generation) return;
  std::vector<std::shared_ptr<graft::Session>> closing;
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(is_closed, true)) return;
    for (const auto& [id, seat] : seats) closing.push_back(seat.session);
  }
  // All at once: each may have a call that waits, and to wait for one after the other takes as many times as long.
  for (const auto& session : closing) session->end_calls();
  for (const auto& session : closing) session->close();
  if (offline) static_cast<void>(base::run_fenced([&] { offline->report_unused(); }));
}

Grafter::Grafter(GraftConfig config) : impl_(std::make_shared<Impl>(std::move(config))) {}

Grafter::~Grafter() {
  close();
}

void Grafter::intercept(const Interception& interception) {
  const std::shared_ptr<Impl> impl = impl_;  // a close meanwhile leaves it to the calls that run
  if (impl->config->strict) return impl->intercept(interception);
  if (const auto cause = base::run_fenced([&] { impl->intercept(interception); })) {
    const auto number = impl->said.hit("thrown: " + *cause);
    if (number != 0) {
      base::log(LogLevel::error, graft::kPart, "a dump is not grafted: {}{}", *cause, graft::times_text(number));
    }
  }
}

ValueInterceptor Grafter::interceptor() {
  return [impl = impl_](const Interception& interception) { impl->intercept(interception); };
}

const GraftConfig& Grafter::config() const noexcept {
  return *impl_->config;
}

GraftState Grafter::state() const {
  if (fork_generation() != impl_->generation) {
    GraftState state;
    state.phase = GraftPhase::off;
    state.cause = "this process is a fork of the one that made the Grafter";
    return state;
  }
  return impl_->state();
}

void Grafter::close() noexcept {
  impl_->close();
}

}  // namespace dbg
