// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Waits without waiting for ever, and turns what goes wrong into one CommError that says all that is known.
#include "distributed/collective_call.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <algorithm>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <utility>

#include "base/formatted.h"
#include "base/held_signals.h"
#include "distributed/backends.h"
#include "distributed/failure_notes.h"
#include "distributed/recorder_gate.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The backend's own deadline should strike first: its words say which side it waited for. With
// kNotesLimit it stays below kLongestOverrun.
constexpr milliseconds kBackendGrace{200};
// An operation that takes longer asks now and then whether another member has failed.
constexpr milliseconds kSlice{250};
constexpr milliseconds kShortestTimeout{1};
// Of what a member says of its operation: room for some twenty dimensions.
constexpr std::int64_t kTermsBytes = 256;

double seconds(milliseconds duration) {
  return static_cast<double>(duration.count()) / 1000.0;
}

constexpr const char* kAdviceBroken =
    "close the group and create it again under the same label on all its ranks, or start the program anew";

}  // namespace

CollectiveCall::CollectiveCall(GroupHalf& half, std::string_view operation, const CallOptions& options)
    : half_(half),
      operation_(operation),
      started_(steady_clock::now()),
      timeout_(options.timeout.value_or(half.timeout)),
      sequence_(half.sequence.fetch_add(1, std::memory_order_relaxed)),
      abort_(options.abort) {
  if (timeout_ <= milliseconds::zero()) {
    throw ConfigError(
        formatted("{}: {} with a timeout of {} ms; it must be positive", half_.label, operation_, timeout_.count()));
  }
  // Before anything else touches the group: a forked child has its locks and none of its threads.
  if (const pid_t own = ::getpid(); own != half_.owner_pid) {
    fail(CommErrorKind::forked, formatted("process {} is a child of {}, which made the group", own, half_.owner_pid),
         "make groups after the fork, or start workers by exec");
  }
  if (const auto cause = half_.broken.cause()) fail(CommErrorKind::broken, *cause, kAdviceBroken);
  backends_ = half_.backends();
  if (!backends_.backend) fail(CommErrorKind::broken, "the group was closed", kAdviceBroken);
  const std::string backend = backends_.backend->getBackendName();
  is_gloo_ = backend == "gloo";
  is_wrapped_ = dynamic_cast<const c10d::ProcessGroupWrapper*>(backends_.backend.get()) != nullptr;
  is_nccl_ = is_nccl(backend);
}

milliseconds CollectiveCall::elapsed() const {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - started_);
}

milliseconds CollectiveCall::left() const {
  return std::max(kShortestTimeout, timeout_ - elapsed());
}

void CollectiveCall::run(const CallShape& shape, Start start) {
  if (is_compared() && shape.peer < 0) compare(shape.terms);
  const bool only_queues = is_gloo_ && !is_wrapped_;
  start_and_wait(shape, [&](milliseconds left) {
    std::optional<RecorderGate> gate;
    if (only_queues) gate.emplace(half_);
    // gloo runs collectives on its own threads, which get no such signal. A message's first bytes go from this one.
    std::optional<base::NoSigpipe> while_written;
    if (!only_queues || shape.peer >= 0) while_written.emplace();
    return start(left);
  });
}

void CollectiveCall::start_and_wait(const CallShape& shape, Start start) {
  std::optional<CommsRecord> record;
  if (!is_nccl_) record.emplace(half_, operation_, sequence_, shape);
  peer_ = shape.peer;
  wait_for_end(start, is_gloo_);
}

void CollectiveCall::wait_for_end(Start start, bool is_gloo) {
  try {
    throw_if_aborted();
    if (backends_.wrapper_helper && peer_ < 0) set_backend_timeout(*backends_.wrapper_helper, left());
    const c10::intrusive_ptr<c10d::Work> work = start(left());
    if (!work) return;  // a backend may have nothing to wait for
    const AbortSignal::Scope scope(abort_, work);
    if (is_gloo && peer_ >= 0) {
      wait_for_message(*work);
    } else if (is_gloo) {
      wait(*work);
    } else {
      wait_for_completion(*work);
    }
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (...) {
    translate_current_exception();
  }
}

// All members come to the same verdict, before the backend has heard of the operation: the group stays as it is.
void CollectiveCall::compare(const std::string& terms) {
  GroupHalf& checker = *backends_.checker;
  const std::string own = formatted("{}{}{}", operation_, terms.empty() ? "" : " ", terms).substr(0, kTermsBytes);
  const at::Tensor rows = at::zeros({half_.size(), kTermsBytes}, at::kByte);
  at::Tensor row = at::zeros({kTermsBytes}, at::kByte);
  std::memcpy(row.mutable_data_ptr(), own.data(), own.size());
  std::vector<std::vector<at::Tensor>> outputs{rows.unbind(0)};
  std::vector<at::Tensor> inputs{row};
  peer_ = -1;
  const auto start = [&](milliseconds left) {
    const RecorderGate gate(checker);
    c10d::AllgatherOptions options;
    options.timeout = left;
    return checker.backend->allgather(outputs, inputs, options);
  };
  wait_for_end(start, /*is_gloo=*/true);
  std::vector<int> others;
  std::string all;
  for (int rank = 0; rank < half_.size(); ++rank) {
    const char* const text = static_cast<const char*>(rows[rank].const_data_ptr());
    const std::string_view said(text, ::strnlen(text, kTermsBytes));
    if (said != own) others.push_back(rank);
    all += formatted("{}rank {}: {}", all.empty() ? "" : "; ", half_.ranks[static_cast<std::size_t>(rank)], said);
  }
  if (others.empty()) return;
  fail(CommErrorKind::handshake_mismatch, formatted("the members are about to do unlike things: {}", all),
       "Make every member call the same operation with the same sizes and dtype, in the same order",
       global_ranks(half_, others));
}

void CollectiveCall::run_blocking(const CallShape& shape, c10::function_ref<void(milliseconds)> body) {
  start_and_wait(shape, [&](milliseconds left) {
    const base::NoSigpipe while_written;
    body(left);
    return c10::intrusive_ptr<c10d::Work>();
  });
}

void CollectiveCall::run_starting(const CallShape& shape, c10::function_ref<void()> start) {
  run(shape, [&](milliseconds) {
    start();
    return c10::intrusive_ptr<c10d::Work>();
  });
}

// gloo's sends and receives can't be asked whether they are done, and a wait that ends early closes the connection; but
// they can be aborted.
void CollectiveCall::wait_for_message(c10d::Work& work) {
  if (!work.wait(left())) {
    throw_if_aborted();
    break_group(CommErrorKind::broken, "the backend gave the message up", kAdviceBroken);
  }
}

// gloo's collectives run on its own threads and can be waited for in slices.
void CollectiveCall::wait(c10d::Work& work) {
  for (;;) {
    const milliseconds longest = timeout_ + kBackendGrace - elapsed();
    try {
      work.wait(std::clamp(longest, kShortestTimeout, kSlice));
      return;
    } catch (const c10::Error& error) {
      // Work::wait's own words for the end of a slice. What the work itself failed of goes on up.
      if (error.what_without_backtrace() == nullptr ||
          std::string_view(error.what_without_backtrace()).find("Operation timed out!") == std::string_view::npos) {
        throw;
      }
      if (work.isCompleted()) continue;
    }
    throw_if_aborted();
    // First, since the others are asked then anyway, and asking takes time where the store is silent.
    if (elapsed() >= timeout_ + kBackendGrace) {
      break_group(CommErrorKind::timeout, formatted("not done within {:.3f} s", seconds(timeout_)));
    }
    throw_if_others_failed();
  }
}

// Others: waiting with a deadline may abort the communicator (NCCL), so they are asked.
void CollectiveCall::wait_for_completion(c10d::Work& work) {
  auto pause = std::chrono::microseconds(20);
  auto next_look = kSlice;
  while (!work.isCompleted()) {
    if (elapsed() >= timeout_) {
      break_group(CommErrorKind::timeout, formatted("not done within {:.3f} s", seconds(timeout_)));
    }
    throw_if_aborted();
    if (elapsed() >= next_look) {
      throw_if_others_failed();
      next_look = elapsed() + kSlice;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(1000));
  }
  work.wait();
}

void CollectiveCall::throw_if_aborted() {
  if (abort_ == nullptr) return;
  // The peer's half of the message is under way, so the connection is of no more use.
  if (const auto cause = abort_->cause()) {
    break_group(CommErrorKind::broken, formatted("aborted: {}", *cause), kAdviceBroken);
  }
}

void CollectiveCall::throw_if_others_failed() {
  if (!has_failure_note(half_)) return;
  break_group(CommErrorKind::peer_lost, "another member of the group failed meanwhile");
}

void CollectiveCall::translate_current_exception() {
  CommCause cause = cause_of_current_exception();
  if (cause.breaks_group) break_group(cause.kind, std::move(cause.text));
  fail(cause.kind, std::move(cause.text));
}

void CollectiveCall::fail(CommErrorKind kind, std::string cause, std::string advice, std::vector<int> peers) {
  CommFailure failure;
  failure.kind = kind;
  failure.group = half_.name;
  failure.label = half_.label;
  failure.ranks = half_.ranks;
  failure.rank = half_.global_rank();
  failure.peers = std::move(peers);
  failure.operation = operation_;
  failure.elapsed = elapsed();
  failure.cause = std::move(cause);
  failure.advice = std::move(advice);
  throw CommError(std::move(failure));
}

void CollectiveCall::break_group(CommErrorKind kind, std::string cause, std::string advice, std::vector<int> peers) {
  if (peers.empty() && peer_ >= 0) peers = global_ranks(half_, {peer_});
  // First, so that other threads of this rank stop using it.
  const auto words = [&] { return formatted("broken since {} failed: {}: {}", operation_, to_text(kind), cause); };
  const bool is_first = half_.broken.set(words());
  if (const auto refusal = leave_failure_note(half_, {kind, operation_, sequence_, cause})) {
    cause += formatted("; the others were not told and not asked: {}", *refusal);
  } else if (const auto notes = collect_failure_notes(half_, kNotesLimit)) {
    if (peers.empty()) peers = global_ranks(half_, notes->silent);
    if (!notes->silent.empty()) {
      cause += formatted("; no word from rank{} {}", notes->silent.size() == 1 ? "" : "s",
                         fmt::join(global_ranks(half_, notes->silent), ", "));
    }
    for (int rank = 0; rank < half_.size(); ++rank) {
      const auto& note = notes->by_rank[static_cast<std::size_t>(rank)];
      if (!note) continue;
      cause += formatted("; rank {} says: {} in {}", half_.ranks[static_cast<std::size_t>(rank)], to_text(note->kind),
                         note->operation);
      // A connection that a timed-out member closed says "lost" to those behind it.
      if (kind == CommErrorKind::peer_lost && note->kind == CommErrorKind::timeout) kind = CommErrorKind::timeout;
    }
  }
  if (is_first) half_.broken.refine(words());
  if (advice.empty()) {
    advice = peers.empty() ? "look for the rank that hangs or died first"
                           : formatted("look at rank{} {}: it hangs, died, or takes another path through the program",
                                       peers.size() == 1 ? "" : "s", fmt::join(peers, ", "));
  }
  fail(kind, std::move(cause), std::move(advice), std::move(peers));
}

std::vector<int> global_ranks(const GroupHalf& half, const std::vector<int>& ranks_in_group) {
  std::vector<int> ranks;
  ranks.reserve(ranks_in_group.size());
  for (const int rank : ranks_in_group) ranks.push_back(half.ranks.at(static_cast<std::size_t>(rank)));
  return ranks;
}

void require_member(const GroupHalf& half, std::string_view operation, std::string_view role, int rank_in_group) {
  if (rank_in_group >= 0 && rank_in_group < half.size()) return;
  throw ConfigError(formatted(
      "{}: {} with {} {}; it is a rank within the group, 0 to {} (global ranks [{}] stand there in this order)",
      half.label, operation, role, rank_in_group, half.size() - 1, fmt::join(half.ranks, ", ")));
}

}  // namespace dbg::distributed
