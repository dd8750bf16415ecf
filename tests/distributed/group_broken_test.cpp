// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups whose operations fail: who is named, also to a rank that comes later, and what becomes of the group. Over a
// real TCPStore with processes, and among threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/failing.h"
#include "distributed/groups.h"
#include "distributed/tcp_world.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AnyOf;
using testing::ElementsAre;
using testing::Eq;
using testing::HasSubstr;

constexpr milliseconds kBrokenTimeout{1000};

OperationOptions in_time() {
  OperationOptions options;
  options.timeout = kBrokenTimeout;
  return options;
}

TEST(GroupBrokenTest, OneThatComesLaterHearsWhoFailedFirst) {
  const std::vector<World> worlds = World::for_threads(3);
  const std::int64_t keys_before = worlds[0].store()->getNumKeys();
  test::Meeting first_has_gone(2);
  test::Meeting all_have_failed(3);
  test::run_ranks_as_threads(3, [&](int rank) {
    auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1, 2}}, test::gloo_pair("tp"));
    const auto reduce = [&] { group->all_reduce(at::ones({2}), ReduceOp::sum, in_time()); };
    if (rank == 0) {
      EXPECT_THAT(test::failure_within(kBrokenTimeout, reduce).peers, ElementsAre(1, 2));
      group.reset();
      first_has_gone.arrive();
    } else if (rank == 1) {
      first_has_gone.arrive();
      const CommFailure failure = test::failure_within(kBrokenTimeout, reduce);
      EXPECT_EQ(failure.kind, CommErrorKind::timeout) << failure.cause;
      EXPECT_THAT(failure.peers, ElementsAre(2)) << failure.cause;
      EXPECT_THAT(failure.cause, HasSubstr("rank 0 says: timeout in all_reduce"));
      EXPECT_THAT(group->describe(), HasSubstr("broken (device: broken since all_reduce failed: timeout"));
    }
    all_have_failed.arrive();
  });
  // The counter of generations, and nothing of what the three left each other.
  EXPECT_EQ(worlds[0].store()->getNumKeys(), keys_before + 1);
}

struct Operation {
  const char* name;
  std::function<void(GroupCoordinator&)> run;
};

// Each waits for all ranks on all ranks, with rank 2 absent.
std::vector<Operation> operations() {
  return {
      {"all_reduce", [](GroupCoordinator& group) { group.all_reduce(at::ones({64}), ReduceOp::sum, in_time()); }},
      {"broadcast", [](GroupCoordinator& group) { group.broadcast(at::ones({64}), 2, in_time()); }},
      {"all_gather_object", [](GroupCoordinator& group) { group.all_gather_object(1, in_time()); }},
      {"broadcast_object", [](GroupCoordinator& group) { group.broadcast_object({}, 2, in_time()); }},
      {"broadcast_tensor_dict", [](GroupCoordinator& group) { group.broadcast_tensor_dict({}, 2, in_time()); }},
  };
}

void meet(const World& world, const std::string& where) {
  world.store()->set(formatted("{}/{}", where, world.rank()), "1");
  for (int rank = 0; rank < 3; ++rank) world.store()->wait({formatted("{}/{}", where, rank)}, milliseconds(20000));
}

// The one that serves the store goes last.
void leave(const World& world) {
  if (world.rank() != 0) world.store()->set(formatted("gone/{}", world.rank()), "1");
  if (world.rank() == 0) world.store()->wait({"gone/1", "gone/2"}, milliseconds(20000));
}

void expect_works(GroupCoordinator& group) {
  const at::Tensor ones = at::ones({2});
  group.all_reduce(ones);
  EXPECT_EQ(ones[0].item<float>(), static_cast<float>(group.world_size()));
}

DBG_RANK_BODY(operations_without_rank_2) {
  const World world = test::open_tcp_world(context);
  for (const Operation& operation : operations()) {
    const GroupOptions options = test::gloo_pair(formatted("tp.{}", operation.name));
    auto group = GroupCoordinator::create(world, {{0, 1, 2}}, options);
    expect_works(*group);
    if (context.rank != 2) {
      const CommFailure failure = test::failure_within(kBrokenTimeout, [&] { operation.run(*group); });
      EXPECT_THAT(failure.kind, AnyOf(Eq(CommErrorKind::timeout), Eq(CommErrorKind::peer_lost))) << failure.cause;
      EXPECT_THAT(failure.peers, ElementsAre(2)) << operation.name << ": " << failure.cause;
      EXPECT_EQ(failure.rank, context.rank);
      EXPECT_EQ(failure.operation, operation.name);
      EXPECT_GE(failure.elapsed, kBrokenTimeout - milliseconds(300)) << operation.name << ": " << failure.cause;
      EXPECT_THAT(failure.group, HasSubstr("@0-2.g0"));
      EXPECT_THAT(group->describe(), HasSubstr("broken ("));
    }
    meet(world, formatted("after/{}", operation.name));
    group->close();
    // Made again under the same name it is another group.
    group = GroupCoordinator::create(world, {{0, 1, 2}}, options);
    EXPECT_THAT(group->describe(), HasSubstr("@0-2.g1"));
    expect_works(*group);
    group->close();
  }
  leave(world);
}

TEST(GroupBrokenTest, AnAbsentRankIsNamedOverATcpStoreAndTheGroupMadeAnew) {
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  test::expect_all_passed(
      test::spawn_ranks({.body = "operations_without_rank_2", .world_size = 3, .argument = std::to_string(port)}));
}

// Ranks 0 and 1 reduce while rank 2 has sent itself `signal`.
void reduce_without_rank_2(const test::RankContext& context, int signal) {
  const World world = test::open_tcp_world(context);
  const auto group = GroupCoordinator::create(world, {{0, 1, 2}}, test::gloo_pair("tp"));
  auto rest = GroupCoordinator::create(world, {{0, 1}}, test::gloo_pair("rest"));
  expect_works(*group);
  meet(world, "ready");
  if (context.rank == 2) ::kill(::getpid(), signal);
  const CommFailure failure =
      test::failure_within(kBrokenTimeout, [&] { group->all_reduce(at::ones({64}), ReduceOp::sum, in_time()); });
  EXPECT_THAT(failure.kind, AnyOf(Eq(CommErrorKind::timeout), Eq(CommErrorKind::peer_lost))) << failure.cause;
  EXPECT_THAT(failure.peers, ElementsAre(2)) << failure.cause;
  expect_works(*rest);
  std::printf("done\n");
  std::fflush(stdout);
}

DBG_RANK_BODY(rank_2_dies_in_an_operation) {
  reduce_without_rank_2(context, SIGKILL);
}

DBG_RANK_BODY(rank_2_stands_still_in_an_operation) {
  reduce_without_rank_2(context, SIGSTOP);
}

// As in a debugger: its connections stay open, and nobody is told.
TEST(GroupBrokenTest, ARankThatStandsStillIsNamedOverATcpStore) {
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  test::RankProcesses ranks(
      {.body = "rank_2_stands_still_in_an_operation", .world_size = 3, .argument = std::to_string(port)});
  for (const int rank : {0, 1}) ranks.wait_for_output(rank, "done");
  ranks.kill(2);
  const auto& results = ranks.wait();
  for (const std::size_t rank : {0, 1}) EXPECT_TRUE(results[rank].passed()) << rank;
}

TEST(GroupBrokenTest, AKilledRankIsNamedOverATcpStoreAndOtherGroupsGoOn) {
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  const auto results =
      test::spawn_ranks({.body = "rank_2_dies_in_an_operation", .world_size = 3, .argument = std::to_string(port)});
  EXPECT_EQ(results[2].signal, SIGKILL);
  for (const std::size_t rank : {0, 1}) EXPECT_TRUE(results[rank].passed()) << rank;
}

}  // namespace
}  // namespace dbg
