// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups that compare: whatever the members do not have in common is an error on each of them, and the group goes on.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/collectives.h"
#include "distributed/failing.h"
#include "distributed/group_impl.h"
#include "distributed/groups.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using GroupBody = std::function<void(GroupCoordinator& group, int rank)>;

void run_checked(int size, const GroupBody& body) {
  const std::vector<World> worlds = World::for_threads(size);
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  test::run_ranks_as_threads(size, [&](int rank) {
    GroupOptions options = test::gloo_pair("tp");
    options.check = true;
    const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {ranks}, options);
    body(*group, rank);
  });
}

void expect_works(GroupCoordinator& group) {
  const at::Tensor ones = at::ones({2});
  group.all_reduce(ones);
  EXPECT_EQ(ones[0].item<float>(), static_cast<float>(group.world_size()));
}

// What both ranks say of two unlike calls; the group works afterwards.
void expect_unlike(const GroupBody& first, const GroupBody& second, const std::string& of_first,
                   const std::string& of_second) {
  run_checked(2, [&](GroupCoordinator& group, int rank) {
    const CommFailure failure =
        test::failure_within(milliseconds(5000), [&] { (rank == 0 ? first : second)(group, rank); });
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch) << failure.cause;
    EXPECT_THAT(failure.cause, AllOf(HasSubstr("rank 0: " + of_first), HasSubstr("rank 1: " + of_second)));
    EXPECT_THAT(failure.peers, ElementsAre(1 - rank));
    expect_works(group);
  });
}

GroupBody reduces(std::vector<std::int64_t> sizes, at::ScalarType dtype, ReduceOp op = ReduceOp::sum) {
  return [=](GroupCoordinator& group, int) { group.all_reduce(at::ones(sizes, dtype), op); };
}

TEST(GroupChecksTest, UnlikeSizesAreSaidOnEveryRank) {
  expect_unlike(reduces({2}, at::kFloat), reduces({3}, at::kFloat), "all_reduce (sum) float32 [2]",
                "all_reduce (sum) float32 [3]");
}

TEST(GroupChecksTest, SoIsAnotherShapeOfAsManyElements) {
  expect_unlike(reduces({2, 3}, at::kFloat), reduces({3, 2}, at::kFloat), "all_reduce (sum) float32 [2, 3]",
                "all_reduce (sum) float32 [3, 2]");
}

// Both travel as bytes.
TEST(GroupChecksTest, SoAreDtypesThatTravelAlike) {
  expect_unlike(reduces({2}, at::kBool), reduces({2}, at::kByte), "all_reduce (sum) bool", "all_reduce (sum) uint8");
}

TEST(GroupChecksTest, SoIsAnotherReduction) {
  expect_unlike(reduces({2}, at::kFloat, ReduceOp::max), reduces({2}, at::kFloat), "all_reduce (max) float32",
                "all_reduce (sum) float32");
}

TEST(GroupChecksTest, SoIsAnotherOperationOrRoot) {
  const GroupBody broadcasts = [](GroupCoordinator& group, int rank) { group.broadcast(at::ones({2}), rank); };
  expect_unlike(reduces({2}, at::kFloat), broadcasts, "all_reduce", "broadcast (from 1)");
  expect_unlike(broadcasts, broadcasts, "broadcast (from 0)", "broadcast (from 1)");
  const GroupBody objects = [](GroupCoordinator& group, int) { group.all_gather_object(1); };
  const GroupBody meets = [](GroupCoordinator& group, int) { group.barrier(); };
  expect_unlike(objects, meets, "all_gather_object", "barrier");
}

TEST(GroupChecksTest, WhatIsAlikePasses) {
  run_checked(2, [](GroupCoordinator& group, int rank) {
    for (int i = 0; i < 3; ++i) {
      expect_works(group);
      group.barrier();
      EXPECT_EQ(group.all_gather(at::full({1}, rank)).numel(), 2);
      EXPECT_EQ(group.broadcast_object(rank, 1).toInt(), 1);
      EXPECT_EQ(group.broadcast_tensor_dict({{"a", at::full({2}, rank)}}, 0).size(), 1U);
      const at::Tensor part = group.reduce_scatter(at::ones({4}));
      EXPECT_EQ(part.numel(), 2);
      group.gather(at::ones({2}), 1);
    }
  });
}

TEST(GroupChecksTest, AnAbsentRankIsNamedByTheCallsOwnDeadline) {
  test::Meeting end(3);
  run_checked(3, [&](GroupCoordinator& group, int rank) {
    if (rank != 2) {
      OperationOptions options;
      options.timeout = milliseconds(700);
      const CommFailure failure =
          test::failure_within(options.timeout, [&] { group.all_reduce(at::ones({2}), ReduceOp::sum, options); });
      EXPECT_EQ(failure.kind, CommErrorKind::timeout) << failure.cause;
      EXPECT_THAT(failure.peers, ElementsAre(2)) << failure.cause;
    }
    end.arrive();
  });
}

TEST(GroupChecksTest, AnAbortEndsTheComparison) {
  test::Meeting end(2);
  run_checked(2, [&](GroupCoordinator& group, int rank) {
    if (rank == 0) {
      distributed::AbortSignal signal;
      std::thread other([&] { signal.raise("the user stopped the run"); });
      distributed::GroupHalf& half = distributed::cpu_half_of(group);
      const CommFailure failure = test::failure_within(milliseconds(500), [&] {
        distributed::all_reduce(half, at::ones({2}), ReduceOp::sum,
                                {.timeout = std::chrono::seconds(20), .abort = &signal});
      });
      other.join();
      EXPECT_THAT(failure.cause, HasSubstr("aborted: the user stopped the run"));
    }
    end.arrive();
  });
}

}  // namespace
}  // namespace dbg
