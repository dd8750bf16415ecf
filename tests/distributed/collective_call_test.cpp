// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How operations fail: within their time, with all that is known, and only once.
#include "distributed/collective_call.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "distributed/collectives.h"
#include "distributed/failing.h"
#include "distributed/gloo_halves.h"
#include "support/forked_child.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::expect_describes;
using test::failure_within;
using test::Meeting;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr milliseconds kCallTimeout{700};

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
      const CommFailure failure = failure_within(kCallTimeout, [&] { GetParam().run(half, {.timeout = kCallTimeout}); });
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
                         [](const testing::TestParamInfo<NamedOperation>& operation) { return operation.param.name; });

TEST(CollectiveCallTest, WithoutAStoreNobodyIsNamedOnNoEvidence) {
  Meeting end(2);
  test::run_halves_as_threads(2,
                              [&](GroupHalf& half) {
                                if (half.rank_in_group == 0) {
                                  const CommFailure failure =
                                      failure_within(kCallTimeout, [&] { barrier(half, {.timeout = kCallTimeout}); });
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
      failure_within(kCallTimeout, [&] { reduce(half, {.timeout = kCallTimeout}); });
      others_failed.arrive();
    } else {
      others_failed.arrive();
      const CommFailure failure = failure_within(kCallTimeout, [&] { reduce(half, {.timeout = kCallTimeout}); });
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

TEST(CollectiveCallTest, OneThatHasBegunKeepsItsBackendWhenTheGroupIsClosed) {
  test::run_halves_as_threads(1, [&](GroupHalf& half) {
    CollectiveCall call(half, "barrier");
    const GroupHalf::Backends closed = half.take_backends();
    call.run({}, [&](milliseconds left) {
      c10d::BarrierOptions options;
      options.timeout = left;
      return call.backend().barrier(options);
    });
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
          milliseconds(500), [&] { barrier(half, {.timeout = std::chrono::seconds(4), .abort = &signal}); });
      other.join();
      EXPECT_EQ(failure.kind, CommErrorKind::broken);
      EXPECT_THAT(failure.cause, HasSubstr("aborted: the user stopped the run"));
    }
    end.arrive();
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

// Somebody else's backend, whose work is asked whether it is done.
class ThirdBackend final : public c10d::Backend {
 public:
  explicit ThirdBackend(c10::intrusive_ptr<c10d::Work> work) : Backend(0, 1), work_(std::move(work)) {}
  const std::string getBackendName() const override { return "third"; }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return work_; }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class ThirdWork final : public c10d::Work {
 public:
  explicit ThirdWork(int questions_until_done, std::string words = "")
      : questions_(questions_until_done), words_(std::move(words)) {}
  bool isCompleted() override { return questions_ >= 0 && --questions_ < 0; }
  bool wait(milliseconds timeout) override {
    EXPECT_EQ(timeout, kNoTimeout) << "a deadline here may abort the communicator";
    if (!words_.empty()) throw std::runtime_error(words_);
    return true;
  }

 private:
  int questions_;
  std::string words_;
};

std::unique_ptr<GroupHalf> third_half(c10::intrusive_ptr<c10d::Work> work) {
  auto half = std::make_unique<GroupHalf>();
  half->name = "third@0.g0";
  half->label = "tp:cpu";
  half->ranks = {0};
  half->backend = c10::make_intrusive<ThirdBackend>(std::move(work));
  return half;
}

TEST(ThirdBackendTest, IsAskedUntilItIsDone) {
  barrier(*third_half(c10::make_intrusive<ThirdWork>(5)));
  barrier(*third_half(nullptr));
}

TEST(ThirdBackendTest, IsGivenUpAtTheDeadline) {
  const auto half = third_half(c10::make_intrusive<ThirdWork>(1 << 30));
  const CommFailure failure = failure_within(milliseconds(50), [&] { barrier(*half, {.timeout = milliseconds(50)}); });
  EXPECT_EQ(failure.kind, CommErrorKind::timeout);
  EXPECT_TRUE(half->broken.is_set());
}

TEST(ThirdBackendTest, ItsWordsAreSorted) {
  const auto half = third_half(c10::make_intrusive<ThirdWork>(0, "Connection reset by peer"));
  EXPECT_EQ(failure_within(milliseconds(0), [&] { barrier(*half); }).kind, CommErrorKind::peer_lost);
}

TEST(ThirdBackendTest, WhatItLacksLeavesTheGroupWhole) {
  const auto half = third_half(c10::make_intrusive<ThirdWork>(0));
  EXPECT_EQ(failure_within(milliseconds(0), [&] { all_reduce(*half, at::ones({2})); }).kind,
            CommErrorKind::unsupported);
  barrier(*half);
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
