// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The two barriers: the backend's, and the one whose members meet in the store and know who is absent.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "distributed/collectives.h"
#include "distributed/failure_notes.h"
#include "distributed/store_caller.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

// Of a store that other threads of this process use, too.
constexpr milliseconds kBarrierPoll{5};
constexpr milliseconds kSlowestPoll{50};
// For the last look, which begins at the deadline.
constexpr milliseconds kBarrierGrace{300};

std::string arrival_key(std::uint64_t barrier, int rank_in_group) {
  return formatted("barrier/{}/{}", barrier, rank_in_group);
}

// gloo's words: "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 1000 ms".
std::vector<int> absent_in_words(std::string_view text, int size) {
  std::vector<int> absent;
  constexpr std::string_view kBefore = "]: Rank";
  const std::size_t begin = text.find(kBefore);
  const std::size_t end = text.find(" failed to pass monitoredBarrier");
  if (begin == text.npos || end == text.npos || end < begin) return absent;
  const std::string_view list = text.substr(begin + kBefore.size(), end - begin - kBefore.size());
  for (const char* at = list.data(); at < list.data() + list.size();) {
    int rank = -1;
    const auto [next, error] = std::from_chars(at, list.data() + list.size(), rank);
    if (error == std::errc() && rank >= 0 && rank < size) absent.push_back(rank);
    at = error == std::errc() ? next : at + 1;
  }
  return absent;
}

void meet_in_backend(CollectiveCall& call) {
  GroupHalf& half = call.half();
  call.run_blocking({}, [&](milliseconds left) {
    c10d::BarrierOptions options;
    options.timeout = left;
    const auto refusal = base::run_fenced([&] { call.backend().monitoredBarrier(options, /*waitAllRanks=*/true); });
    if (!refusal) return;
    const std::vector<int> absent = absent_in_words(*refusal, half.size());
    if (!absent.empty()) call.break_group(CommErrorKind::peer_missing, *refusal, {}, global_ranks(half, absent));
    const CommErrorKind kind = kind_of_words(*refusal);
    if (kind == CommErrorKind::unsupported) call.fail(kind, *refusal);
    call.break_group(kind, *refusal);
  });
}

void meet_in_store(CollectiveCall& call) {
  GroupHalf& half = call.half();
  const std::uint64_t barrier = half.barriers.fetch_add(1, std::memory_order_relaxed);
  std::vector<int> awaited;
  for (int rank = 0; rank < half.size(); ++rank) {
    if (rank != half.rank_in_group) awaited.push_back(rank);
  }
  bool is_late = false;
  const auto refusal = base::run_fenced([&] {
    const StoreDeadline in_time(std::chrono::steady_clock::now() + call.left() + kBarrierGrace,
                                StoreDeadline::Missed::is_forgiven);
    half.store->set(arrival_key(barrier, half.rank_in_group), "1");
    milliseconds pause = kBarrierPoll;
    for (;;) {
      // Looked at once more after the deadline, so that a slow poll blames nobody.
      is_late = call.left() <= milliseconds(1);
      awaited.erase(std::remove_if(awaited.begin(), awaited.end(),
                                   [&](int rank) { return half.store->check({arrival_key(barrier, rank)}); }),
                    awaited.end());
      if (awaited.empty() || is_late) break;
      std::this_thread::sleep_for(std::min(pause, call.left()));
      pause = std::min(2 * pause, kSlowestPoll);
    }
    // All are at this barrier, so nobody looks for the last one's key any more.
    if (awaited.empty() && barrier > 0) half.store->deleteKey(arrival_key(barrier - 1, half.rank_in_group));
  });
  if (refusal) call.fail(CommErrorKind::store_down, *refusal, kAdviceStoreSilent);
  if (awaited.empty()) return;
  const std::vector<int> absent = global_ranks(half, awaited);
  call.fail(CommErrorKind::peer_missing,
            formatted("{} of {} ranks came; rank{} {} did not", half.size() - static_cast<int>(absent.size()),
                      half.size(), absent.size() == 1 ? "" : "s", fmt::join(absent, ", ")),
            "look at where those ranks are: they hang, died, or take another path through the program", absent);
}

}  // namespace

void barrier(GroupHalf& half, const CallOptions& options) {
  CollectiveCall call(half, "barrier", options);
  call.run({}, [&](milliseconds left) {
    c10d::BarrierOptions to_backend;
    to_backend.timeout = left;
    return call.backend().barrier(to_backend);
  });
}

void monitored_barrier(GroupHalf& half, const CallOptions& options) {
  CollectiveCall call(half, "monitored_barrier", options);
  if (half.store) {
    meet_in_store(call);
  } else {
    meet_in_backend(call);
  }
}

}  // namespace dbg::distributed
