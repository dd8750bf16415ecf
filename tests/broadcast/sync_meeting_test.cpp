// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Workers meet in a store: words reach all, the missing are named, keys do not pile up.
#include "broadcast/sync_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "broadcast/bucket_exchange.h"
#include "dbg/error.h"
#include "support/rank_threads.h"

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kWho{"actor 0 on node a", "rollout 0 on node b", "rollout 1 on node c"};

SyncMeeting meeting(const c10::intrusive_ptr<c10d::Store>& store, int worker, milliseconds timeout) {
  return SyncMeeting(c10::make_intrusive<distributed::TrackedStore>(store, "test"), kWho, worker, timeout);
}

TEST(SyncMeetingTest, AllMeetHearTheWordAndLeaveNothing) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::int64_t keys_after_first = 0;
  test::run_ranks_as_threads(3, [&](int worker) {
    SyncMeeting own = meeting(store, worker, std::chrono::seconds(20));
    const distributed::AbortSignal signal;
    for (std::int64_t round = 0; round < 20; ++round) {
      own.put_own("hello", SyncHello{round, 7, 99, 3}.to_json());
      ASSERT_EQ(own.meet("sync", {{"x", "1"}}), round);
      if (round > 0) own.forget(round - 1);
      // Only the root reads what others brought: they may bring the next when they have heard its word.
      if (worker == 0) {
        const SyncHello hello = SyncHello::from_json(own.values_of("hello", 2, 3).front());
        ASSERT_EQ(hello.group, round);
        ASSERT_EQ(hello.manifest, 99U);
        own.put_begin(round, {5, true});
      }
      if (worker != 0) {
        ASSERT_EQ(own.await_begin(round, signal).version, 5);
      }
      own.put_ready(round);
      if (worker != 0) {
        own.put_done(round, worker == 1 ? "broke" : "");
        continue;
      }
      own.await_all_ready(round, signal);
      const auto ends = own.await_all_done(round);
      ASSERT_EQ(ends[1], "failed: broke");
      ASSERT_EQ(ends[2], "");
      if (round == 1) keys_after_first = store->getNumKeys();
      if (round == 19) {
        EXPECT_LE(store->getNumKeys(), keys_after_first + 3);
      }
    }
  });
}

TEST(SyncMeetingTest, TheMissingAreNamedByRoleAndNode) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  test::run_ranks_as_threads(3, [&](int worker) {
    if (worker == 2) return;
    SyncMeeting own = meeting(store, worker, milliseconds(500));
    try {
      own.meet("sync", {});
      ADD_FAILURE() << "met without one";
    } catch (const CommError& error) {
      EXPECT_EQ(error.kind(), CommErrorKind::peer_missing);
      EXPECT_THAT(error.what(), HasSubstr("rollout 1 on node c"));
    }
  });
}

TEST(SyncMeetingTest, WaitsEndByDeadlineOrSignal) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  SyncMeeting own = meeting(store, 0, milliseconds(200));
  distributed::AbortSignal signal;
  try {
    own.put_ready(1);
    own.await_all_ready(1, signal);
    ADD_FAILURE() << "all are ready";
  } catch (const MeetingTimeout& timeout) {
    EXPECT_THAT(timeout.missing, ElementsAre(1, 2));
  }
  const auto ends = own.await_all_done(1);
  EXPECT_FALSE(ends[1]);
  signal.raise("over");
  EXPECT_THROW(own.await_all_ready(1, signal), Interrupted);
  EXPECT_THROW(own.await_begin(1, signal), Interrupted);
  EXPECT_THROW(own.await_verdict([] { return false; }, signal), Interrupted);
}

TEST(SyncMeetingTest, WhatIsNoHelloIsRefused) {
  EXPECT_THROW(SyncHello::from_json("hm"), CommError);
  EXPECT_THROW(SyncHello::from_json("{\"group\": \"x\"}"), CommError);
  EXPECT_FALSE(SyncHello::from_json(SyncHello{}.to_json()).manifest);
}

}  // namespace
}  // namespace dbg::broadcast
