// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Finds out who is to blame, and says it.
#include "broadcast/sync_run.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "broadcast/sync_meeting.h"
#include "distributed/store_caller.h"

namespace dbg::broadcast {
namespace {

// Several times the 50 ms after which each rank's watch looks: ranks of a busy machine answer late, and a store takes
// the answers of thousands one after the other.
std::chrono::milliseconds roll_limit(int num_workers) {
  return std::chrono::milliseconds(500 + num_workers);
}

SyncCause cause_of(const CommFailure& failure, std::string text) {
  SyncCause cause;
  cause.kind = failure.kind;
  cause.text = std::move(text);
  cause.advice = failure.advice;
  return cause;
}

SyncCause cause_of_store(const std::string& who, const std::string& text) {
  SyncCause cause;
  cause.kind = CommErrorKind::store_down;
  cause.text = formatted("{}the store failed: {}", who.empty() ? "" : who + ": ", text);
  cause.advice = "see whether the process that serves the store still runs";
  return cause;
}

// What a worker that calls the roll already finds out; nullopt where none does, or none in time.
std::optional<SyncCause> cause_of_another_roll(const SyncRun& run) {
  std::optional<SyncCause> found;
  base::run_fenced([&] {
    if (run.watch().may_call_roll(run.id)) return;
    const auto deadline =
        std::chrono::steady_clock::now() + roll_limit(run.context->num_workers()) + std::chrono::milliseconds(200);
    distributed::PollPause pause;
    do {
      found = run.watch().verdict(run.id).cause;
    } while (!found && pause.wait(deadline));
  });
  return found;
}

// A peer did not do its part. Silent ranks are to blame; else it is told what each is doing.
SyncCause cause_of_wait(const SyncRun& run, CommErrorKind kind, const std::vector<int>& peers,
                        const std::string& what) {
  const SyncContext& context = *run.context;
  if (const auto found = cause_of_another_roll(run)) return *found;
  SyncCause cause;
  cause.kind = kind;
  const SyncWatch::Roll roll = run.watch().call_roll(run.id, roll_limit(context.num_workers()));
  const auto name = [&](int worker) { return context.who[static_cast<std::size_t>(worker)]; };
  std::vector<std::string> silent;
  for (const int worker : roll.silent) silent.push_back(name(worker));
  if (!silent.empty()) {
    cause.workers = roll.silent;
    cause.text = formatted("no word from {}: {} {}; {} buckets were through there", fmt::join(silent, ", "),
                           context.own(), what, run.watch().activity().buckets());
    cause.advice = "see whether that process still runs";
    if (cause.kind == CommErrorKind::broken) cause.kind = CommErrorKind::peer_lost;
    return cause;
  }
  cause.workers = peers;
  cause.text = formatted("{} {}", context.own(), what);
  for (int worker = 0; worker < context.num_workers(); ++worker) {
    const std::string& answer = roll.answers[static_cast<std::size_t>(worker)];
    if (!answer.empty()) cause.text += formatted("; {} {}", name(worker), answer);
  }
  cause.advice =
      "look at the rank whose own code runs longest, or raise the timeout above the longest pause of the source";
  return cause;
}

}  // namespace

int SyncContext::worker_of_rank(int rank) const {
  for (std::size_t i = 0; i < topology.actor_ranks.size(); ++i) {
    if (rank >= 0 && topology.actor_ranks[i] == rank) return static_cast<int>(i);
  }
  for (std::size_t i = 0; i < topology.rollout_ranks.size(); ++i) {
    if (topology.rollout_ranks[i] == rank) return num_actors() + static_cast<int>(i);
  }
  return -1;
}

SyncCause cause_of_failure(const SyncRun& run) {
  const SyncContext& context = *run.context;
  run.watch().hurry();
  const auto known = [&]() -> std::optional<SyncCause> {
    std::optional<SyncCause> cause;
    base::run_fenced([&] { cause = run.watch().verdict(run.id).cause; });
    if (!cause && run.signal->cause()) {
      cause.emplace();
      cause->text = *run.signal->cause();
    }
    return cause;
  };
  SyncCause cause;
  try {
    throw;
  } catch (const Interrupted&) {
    if (const auto found = known()) return *found;
    cause.text = formatted("{}: the sync was ended, and nobody says why", context.own());
    cause.advice = "look at the other ranks' messages";
  } catch (const ForeignFailure& failure) {
    cause.text = formatted("{}: {}", context.own(), failure.text);
    cause.advice = "look at that rank's source or sink, then sync again";
    cause.workers = {context.worker};
  } catch (const WireError& error) {
    // A connection that another rank's failure closed says nothing by itself.
    if (const auto found = known()) return *found;
    const int peer = context.worker_of_rank(error.peer());
    return cause_of_wait(
        run, error.kind(), peer < 0 ? std::vector<int>() : std::vector<int>{peer},
        formatted("had a message to or from {} under way: {}",
                  peer < 0 ? "the others" : context.who[static_cast<std::size_t>(peer)], error.what()));
  } catch (const MeetingTimeout& timeout) {
    std::vector<std::string> names;
    for (const int worker : timeout.missing) names.push_back(context.who[static_cast<std::size_t>(worker)]);
    return cause_of_wait(run, CommErrorKind::timeout, timeout.missing,
                         formatted("waited in vain for {} by {}", timeout.waited_for, fmt::join(names, ", ")));
  } catch (const CommError& error) {
    cause = cause_of(error.failure(), formatted("{}: {}", context.own(), error.failure().cause));
    cause.workers = {context.worker};
  } catch (const c10::DistStoreError& error) {
    return cause_of_store(context.own(), error.what_without_backtrace());
  } catch (const distributed::StoreSilent& error) {
    return cause_of_store(context.own(), error.what());
  } catch (...) {
    cause.text = formatted("{}: {}", context.own(), base::describe_current_exception());
    cause.workers = {context.worker};
  }
  return cause;
}

SyncCause cause_of_meeting() {
  try {
    throw;
  } catch (const CommError& error) {
    SyncCause cause = cause_of(error.failure(), error.failure().cause);
    cause.workers = error.failure().peers;
    return cause;
  } catch (...) {
    return cause_of_store("", base::describe_current_exception());
  }
}

}  // namespace dbg::broadcast
