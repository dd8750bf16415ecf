// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What groups leave behind: nothing that grows, nothing that hangs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/groups.h"
#include "support/forked_child.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;

std::ptrdiff_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

struct Footprint {
  std::int64_t keys;
  std::ptrdiff_t threads;
  std::ptrdiff_t files;
  bool operator==(const Footprint&) const = default;
};

void make_again_and_again(const std::vector<World>& worlds, const GroupOptions& options) {
  const auto cycle = [&] {
    test::run_ranks_as_threads(2, [&](int rank) {
      const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, options);
      at::Tensor ones = at::ones({2});
      group->all_reduce(ones);
      EXPECT_EQ(ones[0].item<float>(), 2.0F);
      group->monitored_barrier();
      group->close();
    });
  };
  const auto footprint = [&] {
    return Footprint{worlds[0].store()->getNumKeys(), entries_of("/proc/self/task"), entries_of("/proc/self/fd")};
  };
  cycle();
  cycle();
  const Footprint before = footprint();
  for (int i = 0; i < 100; ++i) cycle();
  const Footprint after = footprint();
  EXPECT_EQ(after.keys, before.keys);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.files, before.files);
}

DBG_RANK_BODY(makes_groups_again_and_again) {
  make_again_and_again(World::for_threads(2), test::gloo_pair("tp"));
}

DBG_RANK_BODY(makes_checked_groups_over_tcp_again_and_again) {
  const World server = World::over_tcp({"127.0.0.1", 0, true}, 0, 2);
  const World client = World::over_tcp({"127.0.0.1", server.store_port(), false}, 1, 2);
  GroupOptions options = test::gloo_pair("tp");
  options.check = true;
  make_again_and_again({server, client}, options);
}

TEST(GroupLifetimeTest, AHundredCyclesLeaveKeysThreadsAndFilesFlat) {
  test::expect_all_passed(test::spawn_ranks({.body = "makes_groups_again_and_again"}));
}

TEST(GroupLifetimeTest, SoDoAHundredOfCheckedGroupsOverATcpStore) {
  test::expect_all_passed(test::spawn_ranks({.body = "makes_checked_groups_over_tcp_again_and_again"}));
}

DBG_RANK_BODY(four_threads_four_groups) {
  const World world = World::for_threads(1).front();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&world, i] {
      const auto group = GroupCoordinator::create(world, {{0}}, test::gloo_pair(formatted("g{}", i)));
      at::Tensor ones = at::ones({2});
      group->all_reduce(ones);
      EXPECT_EQ(ones[0].item<float>(), 1.0F);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GroupLifetimeTest, FourThreadsMakeFourGroupsInFreshProcesses) {
  const char* rounds = std::getenv("DBG_TEST_FRESH_PROCESSES");
  const int processes = rounds != nullptr ? std::stoi(rounds) : 12;
  for (int done = 0; done < processes; done += 4) {
    test::expect_all_passed(test::spawn_ranks({.body = "four_threads_four_groups", .world_size = 4}));
    if (HasFailure()) break;
  }
}

TEST(GroupLifetimeTest, ClosingTwiceAndUsingAfterwardsIsHarmless) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, test::gloo_pair("tp"));
  group->close();
  group->close();
  EXPECT_THROW(group->barrier(), LogicError);
  EXPECT_THROW(group->all_reduce(at::ones({1})), LogicError);
  EXPECT_TRUE(group->label_report().channels.empty());
}

TEST(GroupLifetimeTest, ADestructorWaitsForNobodyLong) {
  const std::vector<World> worlds = World::for_threads(2);
  test::run_ranks_as_threads(2, [&](int rank) {
    auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, test::gloo_pair("tp"));
    static std::atomic<bool> is_gone{false};
    if (rank == 0) {
      const auto began = std::chrono::steady_clock::now();
      group.reset();
      const auto took = std::chrono::steady_clock::now() - began;
      EXPECT_GE(took, milliseconds(1000));  // waits for the other, which does not come
      EXPECT_LT(took, milliseconds(2000));
      is_gone = true;
      is_gone.notify_all();
    } else {
      is_gone.wait(false);
    }
  });
}

// With an operation under way in both halves, the three steps of closing share one bound.
TEST(GroupLifetimeTest, ClosingTakesNoLongerThanItsBoundWhereAnOperationIsUnderWay) {
  const std::vector<World> worlds = World::for_threads(2);
  std::atomic<bool> is_closed{false};
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto group =
        GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, test::gloo_pair("tp"));
    if (rank == 1) {
      is_closed.wait(false);
      return;
    }
    // Held by the works that nobody joins: what the backends wait for when they go.
    std::vector<at::Tensor> tensors{at::ones({2})};
    const auto device_work = group->device_group()->allreduce(tensors);
    const auto cpu_work = group->cpu_group()->allreduce(tensors);
    const auto began = std::chrono::steady_clock::now();
    group->close(milliseconds(1000));
    EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(2000));
    is_closed = true;
    is_closed.notify_all();
  });
}

TEST(GroupLifetimeTest, AForkedChildNeitherHangsNorWorks) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, test::gloo_pair("tp"));
  const auto child = test::run_forked(
      [&] {
        try {
          group->barrier();
          return 1;
        } catch (const CommError& error) {
          if (error.kind() != CommErrorKind::forked) return 2;
        }
        group->close();
        return 0;
      },
      milliseconds(10000));
  EXPECT_FALSE(child.hung);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  group->barrier();
}

// It would read the answers that the store gives its parent.
TEST(GroupLifetimeTest, AForkedChildMakesNoGroupInItsParentsWorld) {
  const World world = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  const auto group = GroupCoordinator::create(world, {{0}}, test::gloo_pair("tp"));
  const auto child = test::run_forked(
      [&] {
        try {
          GroupCoordinator::create(world, {{0}}, test::gloo_pair("pp"));
          return 1;
        } catch (const CommError& error) {
          return error.kind() == CommErrorKind::forked ? 0 : 2;
        }
      },
      milliseconds(10000));
  EXPECT_FALSE(child.hung);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(world.pid(), ::getpid());
  GroupCoordinator::create(world, {{0}}, test::gloo_pair("pp"))->barrier();
}

}  // namespace
}  // namespace dbg
