// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which dumps are grafted, and by whom: a session a participant, or a folder of records.
#include "dbg/grafter.h"

#include <cxxabi.h>

#include <map>
#include <mutex>
#include <utility>

#include "base/fence.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dbg/participant.h"
#include "dump/filter.h"
#include "dump/fork_generation.h"
#include "graft/offline.h"
#include "graft/place.h"
#include "graft/receive.h"
#include "graft/session.h"
#include "graft/transforms.h"
#include "graft/value_text.h"

namespace dbg {
namespace {

using graft::CallOutcome;
using graft::CallResult;

constexpr std::string_view kPart = "Grafter";

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

  std::shared_ptr<graft::Session> session_of(const std::shared_ptr<const Participant>& participant) {
    const std::lock_guard lock(mutex);
    auto& session = sessions[participant->id()];
    if (!session) session = std::make_shared<graft::Session>(config, participant);
    return session;
  }

  // The way of one dump; null where no filter matches.
  void intercept(const Interception& interception);
  CallResult take_from_folder(graft::Session& session, const Interception& interception);
  void close() noexcept;

  const std::shared_ptr<const GraftConfig> config;
  const Matcher b2t;
  const Matcher t2b;
  const unsigned generation = fork_generation();
  std::unique_ptr<graft::OfflineSource> offline;  // null with a live peer

  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<graft::Session>> sessions;  // under mutex, by participant
  bool is_closed = false;                                             // under mutex
};

void Grafter::Impl::intercept(const Interception& interception) {
  // In a forked child a thread of the parent may hold the locks, and the group is the parent's.
  if (fork_generation() != generation) return;
  const CallTags tags(interception);
  const bool is_b2t = b2t.matches(tags);
  const bool is_t2b = t2b.matches(tags);
  if (!is_b2t && !is_t2b) return;
  {
    const std::lock_guard lock(mutex);
    if (is_closed) return;
  }
  const std::shared_ptr<graft::Session> session = session_of(current_participant());
  CallResult result;
  if (is_b2t && is_t2b) {
    result = {CallOutcome::ambiguous, "both filters match: it would flow both ways"};
    session->count(result.outcome);
    base::log(LogLevel::error, kPart,
              "tags={}: grafter_b2t_filter and grafter_t2b_filter both match; narrow one, on "
              "both sides. Nothing is grafted here.",
              graft::value_text(interception.tags));
  } else if (offline) {
    result = is_b2t ? take_from_folder(*session, interception) : CallResult{CallOutcome::sent, {}};
  } else {
    const GraftDirection direction = is_b2t ? GraftDirection::b2t : GraftDirection::t2b;
    result = session->run({interception, direction, name_of(interception), place_of(interception)});
  }
  if (config->strict && !result.cause.empty()) throw Error("graft of '" + name_of(interception) + "': " + result.cause);
}

CallResult Grafter::Impl::take_from_folder(graft::Session& session, const Interception& interception) {
  const auto participant = current_participant();
  CallResult result{CallOutcome::grafted, {}};
  const bool is_identity = config->transform.empty() || config->transform == "identity" || config->transform == "cast";
  graft::OfflineAnswer answer = offline->find(
      {interception.tags, interception.step, participant->rank(), /*wants_all_ranks=*/!is_identity}, config->max_bytes);
  if (answer.senders.empty()) {
    result = {CallOutcome::missing, answer.missing};
  } else {
    graft::ReceiveRequest request{*config, interception.tags, interception.value};
    request.receiver_rank = participant->rank();
    request.receiver_count = participant->world_size();
    request.place = place_of(interception);
    request.senders = std::move(answer.senders);
    const graft::ReceiveResult received = graft::receive(std::move(request));
    result.cause = received.cause;
    if (received.outcome == graft::ReceiveOutcome::failed) result.outcome = CallOutcome::failed;
    if (received.outcome == graft::ReceiveOutcome::refused) result.outcome = CallOutcome::refused;
    if (received.outcome == graft::ReceiveOutcome::empty) result.outcome = CallOutcome::empty;
  }
  if (!result.cause.empty()) {
    base::log(LogLevel::error, kPart, "recv role=file tags={}: the target keeps its value: {}",
              graft::value_text(interception.tags), result.cause);
  }
  session.count(result.outcome);
  return result;
}

void Grafter::Impl::close() noexcept {
  if (fork_generation() != generation) return;
  std::map<std::uint64_t, std::shared_ptr<graft::Session>> closing;
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(is_closed, true)) return;
    closing = sessions;
  }
  for (auto& [id, session] : closing) session->close();
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
    base::log(LogLevel::error, kPart, "a dump is not grafted: {}", *cause);
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
  return impl_->session_of(current_participant())->state();
}

void Grafter::close() noexcept {
  impl_->close();
}

}  // namespace dbg
