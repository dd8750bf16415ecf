// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks a World's store, and gives it up when it does not answer.
#include "global/store_exp_name_board.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/left_behind.h"
#include "base/no_cancellation.h"
#include "dbg/error.h"
#include "distributed/tracked_store.h"
#include "distributed/world_state.h"
#include "dump/config_knobs.h"

namespace dbg {
namespace {

using Clock = std::chrono::steady_clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr std::chrono::milliseconds kPatience{5000};

struct Answer {
  std::string value;
  std::optional<std::string> fault;
};

// A TCPStore's client lets one operation through at a time, and another thread may be waiting in it: a client of our
// own then. A server that is gone is found out before: torch's client looks for it for minutes, with lines in the log.
// Other stores have no client: a clone of a FileStore would count as a rank that is done.
StorePointer own_client(const StorePointer& store, Clock::time_point deadline) {
  StorePointer bare = store;
  while (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(bare.get())) bare = prefixed->getUnderlyingStore();
  const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(bare.get());
  if (tcp == nullptr) return store;
  if (const auto reason = distributed::why_no_connection(tcp->getHost(), tcp->getPort(), deadline)) {
    throw std::runtime_error(formatted("its server at {}:{} is gone: {}", tcp->getHost(), tcp->getPort(), *reason));
  }
  return distributed::clone_of(store);
}

// On a thread of its own, which is left behind when the store does not come back (a TCPStore's client receives without
// a timeout). It owns all that it uses. nullopt: no answer in time.
std::optional<Answer> ask(StorePointer store, std::string key, std::string proposal, Clock::time_point deadline) {
  const auto answer = std::make_shared<Answer>();
  const bool is_there = base::finishes_by(
      deadline, [store = std::move(store), key = std::move(key), proposal = std::move(proposal), deadline, answer] {
        answer->fault = base::run_fenced(
            [&] { answer->value = own_client(store, deadline)->compareSet(key, std::string(), proposal); });
      });
  if (!is_there) return std::nullopt;
  return std::move(*answer);
}

}  // namespace

StoreExpNameBoard::StoreExpNameBoard(const World& world)
    : world_(world), key_(world.key_prefix() + "/exp_name"), limit_(std::min(kPatience, world.timeout())) {
  const std::string launch = launch_key_of_all_nodes();
  if (!launch.empty()) key_ += "/" + launch;
}

ExpNameClaim StoreExpNameBoard::claim(const std::string& proposal) {
  const base::NoCancellation until_answered;  // unwinding past a thread that is not joined ends the process
  const auto began = Clock::now();
  std::optional<Answer> answer;
  std::optional<std::string> fault =
      base::run_fenced([&] { answer = ask(world_.store(), key_, proposal, began + limit_); });
  if (!fault && !answer) fault = "it did not answer";
  if (!fault) fault = answer->fault;
  if (!fault) {
    // Whoever may write into the store must not say where records go.
    const std::string wrong = dumping::path_component_fault(answer->value);
    if (wrong.empty()) return {answer->value, 0, answer->value == proposal};
    fault = formatted("what it holds under '{}' is no folder's name: it {}", key_, wrong);
  }
  CommFailure failure;
  failure.kind = CommErrorKind::store_down;
  failure.rank = world_.rank();
  failure.operation = "agreeing on an exp_name";
  failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  failure.cause = formatted("The store of {}: {}", world_.describe(), *fault);
  failure.advice = "Set DUMPER_EXP_NAME on all nodes, or attach() a World whose store answers before the first record";
  throw CommError(std::move(failure));
}

}  // namespace dbg
