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
    SyncId before;
    for (std::int64_t round = 0; round < 20; ++round) {
      own.put_own("hello", SyncHello{round, 7, 99, 3}.to_json());
      const SyncId sync = own.meet("sync", {{"x", "1"}});
      ASSERT_EQ(sync.generation, round);
      if (round > 0) own.forget(before);
      before = sync;
      const SyncHello hello = SyncHello::from_json(own.values_of("hello", 2, 3).front());
      // Who was quicker may have brought its next one already.
      ASSERT_GE(hello.group, round);
      ASSERT_LE(hello.group, round + 1);
      ASSERT_EQ(hello.manifest, 99U);
      if (worker == 0) {
        own.put_begin(sync, {5, true});
        own.put_pushed(sync, 7);
      } else {
        ASSERT_EQ(own.await_begin(sync, signal).version, 5);
        ASSERT_EQ(own.await_pushed(sync, 3, signal), 7);
      }
      own.put_ready(sync);
      if (worker != 0) {
        own.put_done(sync, worker == 1 ? "broke" : "");
        continue;
      }
      own.await_all_ready(sync, signal);
      const auto ends = own.await_all_done(sync, std::chrono::seconds(20));
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
  const auto ends = own.await_all_done(1, milliseconds(50));
  EXPECT_FALSE(ends[1]);
  signal.raise("over");
  EXPECT_THROW(own.await_all_ready(1, signal), Interrupted);
  EXPECT_THROW(own.await_begin(1, signal), Interrupted);
  EXPECT_THROW(own.await_pushed(1, 1, signal), Interrupted);
  EXPECT_THROW(own.await_verdict(
                   1, [] { return false; }, signal),
               Interrupted);
}

TEST(SyncMeetingTest, ADeadlineIsPutOffWhileSomethingMoves) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  SyncMeeting own = meeting(store, 1, milliseconds(400));
  const distributed::AbortSignal signal;
  const SyncId sync(1, "n");
  const auto began = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_move = began;
  int moves = 0;
  try {
    own.await_verdict(
        sync,
        [&] {
          if (moves >= 30 || std::chrono::steady_clock::now() < last_move + milliseconds(50)) return false;
          store->add("test/" + sync.key("moves"), 1);
          last_move = std::chrono::steady_clock::now();
          ++moves;
          return false;
        },
        signal);
    ADD_FAILURE() << "decided";
  } catch (const MeetingTimeout&) {
  }
  EXPECT_EQ(moves, 30);  // for 1.5 s and more
  EXPECT_LT(std::chrono::steady_clock::now() - last_move, std::chrono::seconds(10));
}

TEST(SyncMeetingTest, SyncsOfUnlikeNoncesHaveUnlikeKeys) {
  EXPECT_EQ(SyncId(3).key("begin"), "s/3/begin");
  EXPECT_EQ(SyncId(3, "ab").key("begin"), "s/3-ab/begin");
  EXPECT_FALSE(SyncId(3, "ab") == SyncId(3, "ac"));
}

TEST(SyncMeetingTest, WhatIsNoHelloIsRefused) {
  EXPECT_THROW(SyncHello::from_json("hm"), CommError);
  EXPECT_THROW(SyncHello::from_json("{\"group\": \"x\"}"), CommError);
  EXPECT_FALSE(SyncHello::from_json(SyncHello{}.to_json()).manifest);
}

}  // namespace
}  // namespace dbg::broadcast
