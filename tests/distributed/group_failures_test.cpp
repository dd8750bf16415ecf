// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups that can't be made, among processes: each rank says who is missing or what differs, within the timeout and a
// second, and none hangs or dies of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/formatted.h"
#include "dbg/backend_factory.h"
#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "support/rank_processes.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr milliseconds kFailureTimeout{2000};

void say(const std::string& text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(ignored);
}

// Tries to make the group and says what came of it; a try beyond its bound fails the rank.
void try_to_create(const World& world, const std::vector<std::vector<int>>& lists, GroupOptions options) {
  if (options.group_name.empty()) options.group_name = "tp";
  if (options.device_backend == "auto") options.device_backend = "gloo";
  options.timeout = kFailureTimeout;
  const auto began = std::chrono::steady_clock::now();
  try {
    const auto group = GroupCoordinator::create(world, lists, options);
    say("created " + group->describe() + "\n");
  } catch (const CommError& error) {
    say(formatted("CommError {}\n", error.what()));
    EXPECT_EQ(error.failure().rank, world.rank());
    EXPECT_FALSE(error.failure().ranks.empty());
    EXPECT_FALSE(error.failure().cause.empty());
    EXPECT_EQ(error.failure().operation, "create");
  }
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_LE(took, kFailureTimeout + milliseconds(1000));
}

class GroupFailuresTest : public testing::Test {
 protected:
  std::vector<test::RankResult> run(const std::string& body, int ranks) {
    auto results = test::spawn_ranks({.body = body, .world_size = ranks, .argument = (folder_ / "store").string()});
    test::expect_all_passed(results);
    return results;
  }
  test::TempFolder folder_;
};

DBG_RANK_BODY(rank_2_never_comes) {
  if (context.rank == 2) return;
  try_to_create(World::over_file(context.argument, context.rank, 3), {{0, 1, 2}}, {});
}

TEST_F(GroupFailuresTest, AMissingRankIsNamed) {
  const auto results = run("rank_2_never_comes", 3);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(results[static_cast<std::size_t>(rank)].output,
                AllOf(HasSubstr("peer_missing, peer 2"), HasSubstr("ranks [0, 1, 2]"),
                      HasSubstr(formatted("create on rank {}", rank))));
  }
}

DBG_RANK_BODY(rank_1_is_of_another_opinion) {
  const World world = World::over_file(context.argument, context.rank, 3);
  GroupOptions options;
  options.check = context.rank == 1;
  try_to_create(world, {{0, 1, 2}}, options);
}

TEST_F(GroupFailuresTest, AnotherOpinionIsSaidWithBothValues) {
  for (const test::RankResult& result : run("rank_1_is_of_another_opinion", 3)) {
    EXPECT_THAT(result.output, AllOf(HasSubstr("handshake_mismatch"), HasSubstr("has check off"), HasSubstr("has on")));
  }
}

DBG_RANK_BODY(rank_2_says_it_is_rank_1) {
  try_to_create(World::over_file(context.argument, std::min(context.rank, 1), 3), {{0, 1, 2}}, {});
}

TEST_F(GroupFailuresTest, TwoProcessesOfOneRankAreFoundOut) {
  const auto results = run("rank_2_says_it_is_rank_1", 3);
  for (const std::size_t process : {1, 2}) {
    EXPECT_THAT(results[process].output, HasSubstr("two processes claim to be rank 1"));
  }
  // The leader may come after both have given up.
  EXPECT_THAT(results[0].output, HasSubstr("two processes claim to be rank 1"));
}

// Dies after the handshake, where the others count on it.
DBG_RANK_BODY(rank_1_dies_while_connecting) {
  const auto registration = register_backend("dying", [](const BackendRequest& request) {
    if (request.rank == 1) ::kill(::getpid(), SIGKILL);
    const auto options = c10d::ProcessGroupGloo::Options::create(request.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
    return c10::intrusive_ptr<c10d::Backend>(
        c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.size, options));
  });
  GroupOptions options;
  options.cpu_backend = "dying";
  try_to_create(World::over_file(context.argument, context.rank, 3), {{0, 1, 2}}, options);
}

TEST_F(GroupFailuresTest, ARankThatDiesWhileConnectingBoundsTheOthers) {
  const auto results = test::spawn_ranks(
      {.body = "rank_1_dies_while_connecting", .world_size = 3, .argument = (folder_ / "store").string()});
  EXPECT_EQ(results[1].signal, SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_TRUE(results[rank].passed());
    EXPECT_THAT(results[rank].output,
                AllOf(HasSubstr("CommError tp:cpu (group tp:cpu@0-2.g0, ranks [0, 1, 2])"), HasSubstr("create on rank"),
                      HasSubstr("peer_lost, peer 1"), HasSubstr("no word from rank 1")));
  }
}

// Finds out after the handshake that it can't.
DBG_RANK_BODY(rank_1_refuses_while_connecting) {
  const auto registration = register_backend("refusing", [](const BackendRequest& request) {
    if (request.rank == 1) throw ConfigError("no such device here");
    const auto options = c10d::ProcessGroupGloo::Options::create(request.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
    return c10::intrusive_ptr<c10d::Backend>(
        c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank, request.size, options));
  });
  GroupOptions options;
  options.cpu_backend = "refusing";
  const World world = World::over_file(context.argument, context.rank, 3);
  if (context.rank != 1) {
    try_to_create(world, {{0, 1, 2}}, options);
    return;
  }
  options.device_backend = "gloo";
  options.group_name = "tp";
  options.timeout = kFailureTimeout;
  EXPECT_THROW(GroupCoordinator::create(world, {{0, 1, 2}}, options), ConfigError);
}

TEST_F(GroupFailuresTest, ARankThatRefusesWhileConnectingIsQuotedByTheOthers) {
  const auto results = run("rank_1_refuses_while_connecting", 3);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_THAT(results[rank].output, AllOf(HasSubstr("peer 1"), HasSubstr("rank 1 says: no such device here")));
  }
}

DBG_RANK_BODY(waits_alone_over_tcp) {
  const auto port = static_cast<std::uint16_t>(std::stoi(context.argument));
  const World world = World::over_tcp({"127.0.0.1", port, context.rank == 0}, context.rank, 2);
  if (context.rank == 0) {
    // Goes once the other waits in the handshake.
    world.store()->wait({"dbg/hs/tp/r1@0_1"}, milliseconds(20000));
    ::kill(::getpid(), SIGKILL);
  }
  try_to_create(world, {{0, 1}}, {});
}

TEST_F(GroupFailuresTest, AStoreWhoseServerDiesIsSaid) {
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  const auto results =
      test::spawn_ranks({.body = "waits_alone_over_tcp", .world_size = 2, .argument = std::to_string(port)});
  EXPECT_EQ(results[0].signal, SIGKILL);
  EXPECT_TRUE(results[1].passed());
  EXPECT_THAT(results[1].output, HasSubstr("store_down"));
}

}  // namespace
}  // namespace dbg
