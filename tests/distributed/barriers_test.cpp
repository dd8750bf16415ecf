// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Barriers that name who is absent. (That they meet at all is in collectives_test.cpp.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "distributed/collectives.h"
#include "distributed/failing.h"
#include "distributed/failure_notes.h"
#include "distributed/gloo_halves.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using test::expect_describes;
using test::failure_within;
using test::Meeting;
using testing::ElementsAre;

constexpr milliseconds kTimeout{700};

TEST(MonitoredBarrierTest, EveryRankThatCameLearnsWhoDidNot) {
  Meeting end(4);
  test::run_halves_as_threads(4, [&](GroupHalf& half) {
    monitored_barrier(half);
    if (half.rank_in_group % 2 == 0) {
      const CommFailure failure = failure_within(kTimeout, [&] { monitored_barrier(half, {.timeout = kTimeout}); });
      expect_describes(failure, half, "monitored_barrier");
      EXPECT_EQ(failure.kind, CommErrorKind::peer_missing);
      EXPECT_THAT(failure.peers, ElementsAre(half.ranks[1], half.ranks[3]));
      EXPECT_FALSE(half.broken.is_set());
    }
    end.arrive();
    // The group can still be used.
    barrier(half);
  });
}

TEST(MonitoredBarrierTest, WithoutAStoreTheFirstRankLearnsIt) {
  Meeting end(3);
  test::run_halves_as_threads(3,
                              [&](GroupHalf& half) {
                                if (half.rank_in_group != 2) {
                                  const CommFailure failure =
                                      failure_within(kTimeout, [&] { monitored_barrier(half, {.timeout = kTimeout}); });
                                  if (half.rank_in_group == 0) {
                                    EXPECT_EQ(failure.kind, CommErrorKind::peer_missing) << failure.cause;
                                    EXPECT_THAT(failure.peers, ElementsAre(half.ranks[2]));
                                  }
                                }
                                end.arrive();
                              },
                              {.has_notes = false});
}

TEST(MonitoredBarrierTest, LeavesNoKeysBehind) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Meeting end(2);
  Meeting cleaned(2);
  std::atomic<std::int64_t> keys_before{0};
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto half = test::make_gloo_half(store, rank, 2);
    barrier(*half);
    end.arrive();
    if (rank == 0) keys_before = store->getNumKeys();
    const auto notes = c10::make_intrusive<TrackedStore>(store, "notes");
    half->store = notes;
    for (int i = 0; i < 20; ++i) monitored_barrier(*half);
    // The last barrier's are for others still; the rest is gone already.
    EXPECT_LE(notes->written_keys().size(), 1U);
    barrier(*half);
    delete_notes(*notes, 2, count_as_closing(*notes));
    cleaned.arrive();
    EXPECT_LE(store->getNumKeys(), keys_before);
    barrier(*half);
  });
}

}  // namespace
}  // namespace dbg::distributed
