// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups as their members see them: place in the group, labels read back from the live backends, registry, closing.
#include "dbg/group_coordinator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "dbg/error.h"
#include "distributed/failing.h"
#include "distributed/groups.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(GroupCoordinatorTest, ASingleRanksPairCarriesItsLabels) {
  const World world = World::for_threads(1).front();
  for (const auto& [name, label] : {std::pair("tp", "tp"), std::pair("pp", "pp"), std::pair("", "anonymous")}) {
    const auto group = GroupCoordinator::create(world, {{0}}, test::gloo_pair(name));
    const std::string base = label;
    EXPECT_EQ(group->device_group()->getGroupDesc(), base + ":device");
    EXPECT_EQ(group->cpu_group()->getGroupDesc(), base + ":cpu");
    EXPECT_EQ(group->device_group()->getBackend(c10::DeviceType::CPU)->getGroupDesc(), base + ":device");
    EXPECT_EQ(group->cpu_group()->getBackend(c10::DeviceType::CPU)->getGroupDesc(), base + ":cpu");
    EXPECT_EQ(group->cpu_group()->getGroupName(), base + ":cpu@0.g0");
    EXPECT_NE(group->cpu_group(), group->device_group());
  }
}

TEST(GroupCoordinatorTest, WithLabelsOffThereAreNone) {
  GroupOptions options = test::gloo_pair("tp");
  options.with_labels = false;
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
  EXPECT_EQ(group->cpu_group()->getGroupDesc(), "");
  EXPECT_EQ(group->cpu_group()->getBackend(c10::DeviceType::CPU)->getGroupDesc(), "");
}

void all_reduce_on(c10d::ProcessGroup& group, int rank, int size) {
  std::vector<at::Tensor> tensors{at::full({4}, rank + 1.0)};
  group.getBackend(c10::DeviceType::CPU)->allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0][0].item<double>(), size * (size + 1) / 2.0);
}

// Each rank's place, and that both halves work.
void check_group_of_four(const World& world) {
  const auto group = GroupCoordinator::create(world, {{0, 2}, {3, 1}}, test::gloo_pair("tp"));
  ASSERT_NE(group, nullptr);
  const bool is_even = world.rank() % 2 == 0;
  EXPECT_EQ(group->ranks(), is_even ? (std::vector<int>{0, 2}) : (std::vector<int>{3, 1}));
  const int place = is_even ? world.rank() / 2 : (world.rank() == 3 ? 0 : 1);
  EXPECT_EQ(group->rank_in_group(), place);
  EXPECT_EQ(group->cpu_group()->getRank(), place);
  EXPECT_EQ(group->world_size(), 2);
  EXPECT_EQ(group->rank(), world.rank());
  EXPECT_EQ(group->first_rank(), is_even ? 0 : 3);
  EXPECT_EQ(group->last_rank(), is_even ? 2 : 1);
  EXPECT_EQ(group->next_rank(), group->prev_rank());
  EXPECT_EQ(group->group_name(), "tp");
  EXPECT_EQ(group->local_rank(), world.local_rank());
  EXPECT_EQ(group->timeout(), milliseconds(20000));
  EXPECT_EQ(group->is_first_rank(), place == 0);
  EXPECT_EQ(group->is_last_rank(), place == 1);
  EXPECT_EQ(group->cpu_group()->getGroupDesc(), "tp:cpu");
  all_reduce_on(*group->cpu_group(), place, 2);
  all_reduce_on(*group->device_group(), place, 2);
  EXPECT_THAT(group->describe(), AllOf(HasSubstr("group tp ranks ["), HasSubstr("gloo tp:cpu@"), HasSubstr("ready")));
  group->close();
  EXPECT_TRUE(group->is_closed());
  EXPECT_EQ(group->cpu_group(), nullptr);
  EXPECT_THAT(group->describe(), HasSubstr("closed"));
}

TEST(GroupCoordinatorTest, FourRanksAsThreads) {
  const std::vector<World> worlds = World::for_threads(4);
  test::run_ranks_as_threads(4, [&](int rank) { check_group_of_four(worlds[static_cast<std::size_t>(rank)]); });
}

TEST(GroupCoordinatorTest, NextAndPreviousGoAroundInTheGroupsOrder) {
  WorldOptions options;
  options.timeout = milliseconds(15000);
  const std::vector<World> worlds = World::for_threads(3, options);
  test::run_ranks_as_threads(3, [&](int rank) {
    GroupOptions asked = test::gloo_pair("pp");
    asked.timeout = milliseconds(0);
    const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{2, 0, 1}}, asked);
    const int next[] = {1, 2, 0};
    const int previous[] = {2, 0, 1};
    EXPECT_EQ(group->next_rank(), next[rank]);
    EXPECT_EQ(group->prev_rank(), previous[rank]);
    EXPECT_EQ(group->first_rank(), 2);
    EXPECT_EQ(group->last_rank(), 1);
    EXPECT_EQ(group->is_first_rank(), rank == 2);
    EXPECT_EQ(group->is_last_rank(), rank == 1);
    EXPECT_EQ(group->local_rank(), rank);
    EXPECT_EQ(group->timeout(), milliseconds(15000));  // the world's
  });
}

DBG_RANK_BODY(one_of_four) {
  check_group_of_four(World::over_file(context.argument, context.rank, context.world_size));
}

TEST(GroupCoordinatorTest, FourRanksAsProcesses) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "ranks in processes of their own race with nobody";
  const test::TempFolder folder;
  test::expect_all_passed(
      test::spawn_ranks({.body = "one_of_four", .world_size = 4, .argument = (folder / "store").string()}));
}

DBG_RANK_BODY(one_of_four_by_environment) {
  check_group_of_four(World::from_env(milliseconds(20000)));
}

TEST(GroupCoordinatorTest, FourRanksAsProcessesByEnvironment) {
  const World port_source = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  const std::string port = std::to_string(port_source.store_port());
  test::expect_all_passed(test::spawn_ranks({.body = "one_of_four_by_environment",
                                             .world_size = 4,
                                             .environment = {{"MASTER_ADDR", "127.0.0.1"},
                                                             {"MASTER_PORT", port},
                                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                             {"TORCHELASTIC_RESTART_COUNT", "1"}}}));
}

TEST(GroupCoordinatorTest, TorchsRegistryKnowsBothHalvesUntilTheyAreClosed) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, test::gloo_pair("tp"));
  const std::string name = group->cpu_registered_name();
  EXPECT_EQ(name, "tp:cpu@0.g0");
  EXPECT_EQ(c10d::resolve_process_group(name), group->cpu_group());
  EXPECT_EQ(c10d::resolve_process_group(group->device_registered_name()), group->device_group());
  group->close();
  EXPECT_ANY_THROW(c10d::resolve_process_group(name));
}

TEST(GroupCoordinatorTest, RanksOfOneProcessAllStandInTheRegistry) {
  const std::vector<World> worlds = World::for_threads(2);
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto group =
        GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, test::gloo_pair("tp"));
    EXPECT_EQ(c10d::resolve_process_group(group->cpu_registered_name()), group->cpu_group());
  });
}

TEST(GroupCoordinatorTest, AnyThreadMayAskWhileAnotherCloses) {
  for (int round = 0; round < 10; ++round) {
    const auto group = test::lone_group("tp", true, /*check=*/true);
    std::latch all_ask(3);
    std::atomic<bool> is_over{false};
    std::vector<std::thread> asking;
    for (int i = 0; i < 2; ++i) {
      asking.emplace_back([&] {
        all_ask.arrive_and_wait();
        do {
          const auto cpu = group->cpu_group();
          EXPECT_EQ(cpu ? cpu->getGroupDesc() : "tp:cpu", "tp:cpu");
          const auto device = group->device_group();
          EXPECT_EQ(device ? device->getGroupDesc() : "tp:device", "tp:device");
          EXPECT_THAT(group->cpu_registered_name(), testing::AnyOf("", "tp:cpu@0.g0"));
          EXPECT_THAT(group->device_registered_name(), testing::AnyOf("", "tp:device@0.g0"));
          EXPECT_THAT(group->describe(), HasSubstr("group tp ranks"));
          for (const LabelChannel& one : group->label_report().channels) EXPECT_NE(one.channel, "");
        } while (!is_over.load());
      });
    }
    all_ask.arrive_and_wait();
    group->close();
    is_over = true;
    for (std::thread& thread : asking) thread.join();
    EXPECT_EQ(group->cpu_group(), nullptr);
    EXPECT_EQ(group->device_registered_name(), "");
  }
}

TEST(GroupCoordinatorTest, AnOperationOfAnotherThreadGoesOnToItsDeadlineWhenTheGroupIsClosed) {
  constexpr milliseconds kDeadline{1000};
  const std::vector<World> worlds = World::for_threads(2);
  std::latch both_are_done(2);
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto group =
        GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, test::gloo_pair("tp"));
    if (rank == 1) return both_are_done.arrive_and_wait();
    std::thread waiting([&] {
      const CommFailure failure = test::failure_within(kDeadline, [&] { group->barrier({kDeadline}); });
      EXPECT_EQ(failure.kind, CommErrorKind::timeout) << failure.cause;
      EXPECT_THAT(failure.peers, ElementsAre(1));
    });
    const auto& sequence = distributed::cpu_half_of(*group).sequence;
    auto began = std::chrono::steady_clock::now();
    while (sequence.load() == 0 && std::chrono::steady_clock::now() - began < milliseconds(20000)) {
      std::this_thread::yield();
    }
    began = std::chrono::steady_clock::now();
    group->close(milliseconds(100));
    EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1100));
    waiting.join();
    both_are_done.arrive_and_wait();
  });
}

TEST(GroupCoordinatorTest, AliasesAreFurtherNames) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, test::gloo_pair("tp"));
  group->add_alias("attn_tp");
  group->add_alias("attn_tp");
  group->add_alias("tp");
  EXPECT_THAT(group->aliases(), ElementsAre("attn_tp"));
  EXPECT_THAT(group->describe(), HasSubstr("group tp=attn_tp ranks"));
  EXPECT_THROW(group->add_alias("no/slash"), ConfigError);
}

}  // namespace
}  // namespace dbg
