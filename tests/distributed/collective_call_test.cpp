// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How operations fail: within their time, with all that is known, and only once.
#include "distributed/collective_call.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/comm_cause.h"
#include "distributed/failure_notes.h"
#include "distributed/gloo_halves.h"
#include "support/forked_child.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr milliseconds kTimeout{700};

// What the operation threw. It must come within the deadline and the overrun that is promised.
CommFailure failure_within(milliseconds timeout, const std::function<void()>& operation) {
  const auto started = steady_clock::now();
  try {
    operation();
  } catch (const CommError& error) {
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - started);
    EXPECT_LT(took, timeout + kLongestOverrun) << error.what();
    EXPECT_LE(error.failure().elapsed, took + milliseconds(1));
    return error.failure();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Blocks threads until `count` of them are there.
class Meeting {
 public:
  explicit Meeting(int count) : awaited_(count) {}
  void arrive() {
    std::unique_lock lock(mutex_);
    if (--awaited_ == 0) all_are_here_.notify_all();
    if (!all_are_here_.wait_for(lock, std::chrono::seconds(20), [&] { return awaited_ <= 0; })) {
      ADD_FAILURE() << "the others did not come";
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_are_here_;
  int awaited_;
};

void expect_describes(const CommFailure& failure, const GroupHalf& half, const std::string& operation) {
  EXPECT_EQ(failure.group, half.name);
  EXPECT_EQ(failure.label, "tp:cpu");
  EXPECT_EQ(failure.ranks, half.ranks);
  EXPECT_EQ(failure.rank, half.global_rank());
  EXPECT_EQ(failure.operation, operation);
  EXPECT_FALSE(failure.cause.empty());
  EXPECT_FALSE(failure.advice.empty());
}

using Operation = void (*)(GroupHalf&, const CallOptions&);

void reduce(GroupHalf& half, const CallOptions& options) {
  all_reduce(half, at::ones({400}), ReduceOp::sum, options);
}
void gather_all(GroupHalf& half, const CallOptions& options) {
  all_gather(half, at::ones({400}), 0, options);
}
void scatter(GroupHalf& half, const CallOptions& options) {
  reduce_scatter(half, at::ones({400}), ReduceOp::sum, 0, options);
}
void meet(GroupHalf& half, const CallOptions& options) {
  barrier(half, options);
}

struct NamedOperation {
  const char* name;
  Operation run;
};

class AbsentRankTest : public testing::TestWithParam<NamedOperation> {};

TEST_P(AbsentRankTest, EveryOtherRankNamesItInTime) {
  Meeting end(4);
  test::run_halves_as_threads(4, [&](GroupHalf& half) {
    if (half.rank_in_group != 3) {
      const CommFailure failure = failure_within(kTimeout, [&] { GetParam().run(half, {.timeout = kTimeout}); });
      expect_describes(failure, half, GetParam().name);
      EXPECT_EQ(failure.kind, CommErrorKind::timeout) << failure.cause;
      EXPECT_THAT(failure.peers, ElementsAre(half.ranks[3])) << failure.cause;
      EXPECT_THAT(failure.advice, HasSubstr(std::to_string(half.ranks[3])));
      // Once broken it says so, at once, with the first cause.
      const CommFailure again = failure_within(milliseconds(0), [&] { barrier(half); });
      expect_describes(again, half, "barrier");
      EXPECT_EQ(again.kind, CommErrorKind::broken);
      EXPECT_THAT(again.cause, HasSubstr(std::string("broken since ") + GetParam().name + " failed: timeout"));
    }
    end.arrive();
  });
}

INSTANTIATE_TEST_SUITE_P(Operations, AbsentRankTest,
                         testing::Values(NamedOperation{"all_reduce", &reduce},
                                         NamedOperation{"all_gather", &gather_all},
                                         NamedOperation{"reduce_scatter", &scatter}, NamedOperation{"barrier", &meet}),
                         [](const testing::TestParamInfo<NamedOperation>& info) { return info.param.name; });

TEST(CollectiveCallTest, WithoutAStoreNobodyIsNamedOnNoEvidence) {
  Meeting end(2);
  test::run_halves_as_threads(2,
                              [&](GroupHalf& half) {
                                if (half.rank_in_group == 0) {
                                  const CommFailure failure =
                                      failure_within(kTimeout, [&] { barrier(half, {.timeout = kTimeout}); });
                                  EXPECT_EQ(failure.kind, CommErrorKind::timeout);
                                  EXPECT_THAT(failure.peers, IsEmpty());
                                }
                                end.arrive();
                              },
                              {.has_notes = false});
}

TEST(CollectiveCallTest, ALateRankIsToldWhatHappened) {
  Meeting others_failed(4);
  test::run_halves_as_threads(4, [&](GroupHalf& half) {
    if (half.rank_in_group != 3) {
      failure_within(kTimeout, [&] { reduce(half, {.timeout = kTimeout}); });
      others_failed.arrive();
    } else {
      others_failed.arrive();
      const CommFailure failure = failure_within(kTimeout, [&] { reduce(half, {.timeout = kTimeout}); });
      EXPECT_EQ(failure.kind, CommErrorKind::timeout) << failure.cause;
      EXPECT_THAT(failure.cause, HasSubstr("says: timeout in all_reduce"));
      EXPECT_THAT(failure.peers, IsEmpty());
    }
  });
}

TEST(CollectiveCallTest, AClosedGroupSaysSo) {
  test::run_halves_as_threads(1, [&](GroupHalf& half) {
    half.backend.reset();
    EXPECT_THAT(failure_within(milliseconds(0), [&] { barrier(half); }).cause, HasSubstr("closed"));
  });
}

TEST(CollectiveCallTest, AnAbortedCollectiveEndsEarly) {
  AbortSignal signal;
  Meeting end(2);
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 0) {
      std::thread other([&] { signal.raise("the user stopped the run"); });
      const CommFailure failure = failure_within(
          milliseconds(500), [&] { barrier(half, {.timeout = std::chrono::seconds(20), .abort = &signal}); });
      other.join();
      EXPECT_EQ(failure.kind, CommErrorKind::broken);
      EXPECT_THAT(failure.cause, HasSubstr("aborted: the user stopped the run"));
    }
    end.arrive();
  });
}

// A checked group's word for a mismatch leaves the group usable; all else that comes from the wire breaks it.
TEST(CommCauseTest, WordsOfBackendsAreSorted) {
  const auto expect = [](CommErrorKind kind, const char* words) { EXPECT_EQ(kind_of_words(words), kind) << words; };
  expect(CommErrorKind::timeout, "[unbound_buffer.cc:78] Timed out waiting 1000ms for recv operation to complete");
  expect(CommErrorKind::timeout, "Application timeout caused pair closure");
  expect(CommErrorKind::peer_lost, "[pair.cc:547] Connection closed by peer [127.0.0.1]:24258");
  expect(CommErrorKind::peer_lost, "[pair.cc:538] Read error [127.0.0.1]:62681: Connection reset by peer");
  expect(CommErrorKind::peer_lost, "Broken pipe");
  expect(CommErrorKind::unsupported, "Invalid scalar type");
  expect(CommErrorKind::unsupported, "Backend ucc does not support gather");
  expect(CommErrorKind::handshake_mismatch,
         "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(...)");
  expect(CommErrorKind::broken, "something new");
}

TEST(CommCauseTest, OnlyRefusalsLeaveTheGroupWhole) {
  const auto breaks = [](const auto& error) {
    try {
      throw error;
    } catch (...) {
      return cause_of_current_exception().breaks_group;
    }
  };
  EXPECT_FALSE(breaks(std::runtime_error("Invalid scalar type")));
  EXPECT_FALSE(breaks(std::runtime_error("Detected mismatch between collectives")));
  EXPECT_TRUE(breaks(std::runtime_error("Timed out waiting 1000ms")));
  EXPECT_TRUE(breaks(std::runtime_error("something new")));
}

TEST(FailureNoteTest, TheDescribedFormatIsRead) {
  const auto note = FailureNote::parse("timeout\nall_reduce\n7\nTimed out\nwaiting");
  ASSERT_TRUE(note.has_value());
  EXPECT_EQ(note->kind, CommErrorKind::timeout);
  EXPECT_EQ(note->operation, "all_reduce");
  EXPECT_EQ(note->sequence, 7U);
  EXPECT_EQ(note->cause, "Timed out\nwaiting");
  EXPECT_EQ(note->to_text(), "timeout\nall_reduce\n7\nTimed out\nwaiting");
}

TEST(FailureNoteTest, WhatIsNoNoteIsNone) {
  for (const char* text :
       {"", "timeout", "timeout\nx", "timeout\nx\n1", "tmeout\nx\n1\nc", "timeout\nx\n-1\nc", "timeout\nx\n1x\nc"}) {
    EXPECT_FALSE(FailureNote::parse(text).has_value()) << text;
  }
}

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
    for (int i = 0; i < 20; ++i) monitored_barrier(*half);
    barrier(*half);
    delete_notes(*half);
    cleaned.arrive();
    EXPECT_LE(store->getNumKeys(), keys_before);
    barrier(*half);
  });
}

// Ranks 0 to 2 reduce without end; rank 3 is killed while they do.
DBG_RANK_BODY(reduces_until_a_peer_dies) {
  test::run_half_in_process(context, context.argument, [&](GroupHalf& half) {
    all_reduce(half, at::ones({1000}));
    if (half.rank_in_group == 3) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
    const auto started = steady_clock::now();
    try {
      while (steady_clock::now() - started < std::chrono::seconds(20)) {
        all_reduce(half, at::ones({100000}), ReduceOp::sum, {.timeout = std::chrono::seconds(5)});
      }
      ADD_FAILURE() << "no error";
    } catch (const CommError& error) {
      EXPECT_TRUE(error.kind() == CommErrorKind::peer_lost || error.kind() == CommErrorKind::timeout) << error.what();
      EXPECT_LT(error.failure().elapsed, std::chrono::seconds(6));
      EXPECT_THAT(error.failure().peers, ElementsAre(half.ranks[3])) << error.what();
    }
    // The dead one is never done.
    ::_exit(testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0);
  });
}

TEST(LostRankTest, SurvivorsNameTheKilledOne) {
  const test::TempFolder folder;
  test::RankProcesses ranks(
      {.body = "reduces_until_a_peer_dies", .world_size = 4, .argument = (folder / "store").string()});
  ranks.wait_for_output(3, "ready");
  ranks.kill(3);
  const auto& results = ranks.wait();
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(results[static_cast<std::size_t>(rank)].passed()) << rank;
}

TEST(ForkedChildTest, IsToldAtOnceAndTheParentGoesOn) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto half = test::make_gloo_half(store, 0, 1);
  barrier(*half);
  const test::ForkedChild child = test::run_forked([&] {
    try {
      barrier(*half);
    } catch (const CommError& error) {
      return error.kind() == CommErrorKind::forked ? 0 : 2;
    }
    return 3;
  });
  EXPECT_FALSE(child.hung);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  barrier(*half);
}

}  // namespace
}  // namespace dbg::distributed
