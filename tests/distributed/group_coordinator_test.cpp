// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups as their members see them: place in the group, labels read back from the live backends, registry, closing.
#include "dbg/group_coordinator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dbg/error.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

GroupOptions named(const std::string& name) {
  GroupOptions options;
  options.group_name = name;
  options.device_backend = "gloo";
  options.timeout = milliseconds(20000);
  return options;
}

std::string complaint_of(const World& world, const std::vector<std::vector<int>>& lists, const GroupOptions& options) {
  try {
    GroupCoordinator::create(world, lists, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

TEST(GroupCoordinatorTest, ASingleRanksPairCarriesItsLabels) {
  const World world = World::for_threads(1).front();
  for (const auto& [name, label] : {std::pair("tp", "tp"), std::pair("pp", "pp"), std::pair("", "anonymous")}) {
    const auto group = GroupCoordinator::create(world, {{0}}, named(name));
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
  GroupOptions options = named("tp");
  options.with_labels = false;
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
  EXPECT_EQ(group->cpu_group()->getGroupDesc(), "");
  EXPECT_EQ(group->cpu_group()->getBackend(c10::DeviceType::CPU)->getGroupDesc(), "");
}

// Each kind of operation through the group; what they compute is tested where they are.
void use_each_method(GroupCoordinator& group) {
  const int size = group.world_size();
  const int place = group.rank_in_group();
  at::Tensor value = at::full({2}, place + 1.0);
  group.all_reduce(value);
  EXPECT_EQ(value[0].item<double>(), size * (size + 1) / 2.0);
  EXPECT_EQ(group.all_gather(at::full({2, 3}, place), 0).sizes(), at::IntArrayRef({2 * size, 3}));
  EXPECT_EQ(group.all_gather_list(at::full({1}, place)).size(), static_cast<std::size_t>(size));
  EXPECT_EQ(group.reduce_scatter(at::ones({size, 2})).sizes(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(group.gather(at::ones({2}), 0, 0).defined(), place == 0);
  at::Tensor from_first = at::full({1}, place + 5.0);
  group.broadcast(from_first);
  EXPECT_EQ(from_first.item<double>(), 5.0);
  group.barrier();
  group.monitored_barrier();
  EXPECT_EQ(group.broadcast_object(std::int64_t{place + 40}).toInt(), 40);
  EXPECT_EQ(group.all_gather_object(std::int64_t{place}).back().toInt(), size - 1);
  EXPECT_EQ(group.gather_object("x", 0).size(), place == 0 ? static_cast<std::size_t>(size) : 0U);
  EXPECT_EQ(group.broadcast_tensor_dict({{"hidden", at::ones({2})}, {"step", std::int64_t{3}}}).size(), 2U);
  if (size == 1) return;
  if (group.is_first_rank()) {
    group.send(at::full({2}, 8.0), size - 1);
    group.send_object("hello", size - 1);
    group.send_tensor_dict({{"a", at::ones({1})}}, size - 1);
  }
  if (group.is_last_rank()) {
    at::Tensor got = at::zeros({2});
    group.recv(got, 0);
    EXPECT_EQ(got[1].item<double>(), 8.0);
    EXPECT_EQ(group.recv_object(0).toStringRef(), "hello");
    EXPECT_EQ(group.recv_tensor_dict(0).at(0).first, "a");
  }
}

void all_reduce_on(c10d::ProcessGroup& group, int rank, int size) {
  std::vector<at::Tensor> tensors{at::full({4}, rank + 1.0)};
  group.getBackend(c10::DeviceType::CPU)->allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0][0].item<double>(), size * (size + 1) / 2.0);
}

// Each rank's place, and that both halves work.
void check_group_of_four(const World& world) {
  const auto group = GroupCoordinator::create(world, {{0, 2}, {3, 1}}, named("tp"));
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
  EXPECT_EQ(group->is_first_rank(), place == 0);
  EXPECT_EQ(group->is_last_rank(), place == 1);
  EXPECT_EQ(group->cpu_group()->getGroupDesc(), "tp:cpu");
  all_reduce_on(*group->cpu_group(), place, 2);
  all_reduce_on(*group->device_group(), place, 2);
  use_each_method(*group);
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

DBG_RANK_BODY(one_of_four) {
  check_group_of_four(World::over_file(context.argument, context.rank, context.world_size));
}

TEST(GroupCoordinatorTest, FourRanksAsProcesses) {
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

TEST(GroupCoordinatorTest, RanksOutsideGetNothingAtOnce) {
  const std::vector<World> worlds = World::for_threads(3);
  EXPECT_EQ(GroupCoordinator::create(worlds[2], {{0, 1}}, named("tp")), nullptr);
}

TEST(GroupCoordinatorTest, ListsThatMakeNoSenseAreRefused) {
  const World world = World::for_threads(3).front();
  EXPECT_THAT(complaint_of(world, {}, named("tp")), HasSubstr("no list of ranks"));
  EXPECT_THAT(complaint_of(world, {{0}, {}}, named("tp")), HasSubstr("is empty"));
  EXPECT_THAT(complaint_of(world, {{0, 3}}, named("tp")), HasSubstr("rank 3 in [0, 3] is not one of the world's"));
  EXPECT_THAT(complaint_of(world, {{0, -1}}, named("tp")), HasSubstr("rank -1"));
  EXPECT_THAT(complaint_of(world, {{0, 1}, {2, 1}}, named("tp")), HasSubstr("rank 1 is listed twice"));
  EXPECT_THAT(complaint_of(world, {{0, 0}}, named("tp")), HasSubstr("rank 0 is listed twice"));
  // Also where this rank is in none of the lists.
  EXPECT_THAT(complaint_of(world, {{1, 1}}, named("tp")), HasSubstr("rank 1 is listed twice"));
}

TEST(GroupCoordinatorTest, OptionsThatMakeNoSenseAreRefused) {
  const World world = World::for_threads(1).front();
  GroupOptions options = named("a/b");
  EXPECT_THAT(complaint_of(world, {{0}}, options), HasSubstr("has a '/' at byte 1"));
  options = named("tp");
  options.device_backend = "glo";
  EXPECT_THAT(complaint_of(world, {{0}}, options), HasSubstr("'glo' is not known; there are: auto, gloo, nccl"));
  options = named("tp");
  options.timeout = milliseconds(-5);
  EXPECT_THAT(complaint_of(world, {{0}}, options), HasSubstr("timeout is -5 ms"));
}

TEST(GroupCoordinatorTest, NcclWithoutAGpuIsAConfigError) {
  if (at::hasCUDA()) GTEST_SKIP() << "there is a GPU";
  GroupOptions options = named("tp");
  options.device_backend = "nccl";
  EXPECT_THAT(complaint_of(World::for_threads(1).front(), {{0}}, options),
              testing::MatchesRegex(".*nccl was asked for.*(no GPU is visible|built without NCCL).*"));
  options.device_backend = "auto";
  EXPECT_EQ(GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options)->device_backend(), "gloo");
}

TEST(GroupCoordinatorTest, TorchsRegistryKnowsBothHalvesUntilTheyAreClosed) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, named("tp"));
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
    const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, named("tp"));
    EXPECT_EQ(c10d::resolve_process_group(group->cpu_registered_name()), group->cpu_group());
  });
}

TEST(GroupCoordinatorTest, AliasesAreFurtherNames) {
  const auto group = GroupCoordinator::create(World::for_threads(1).front(), {{0}}, named("tp"));
  group->add_alias("attn_tp");
  group->add_alias("attn_tp");
  group->add_alias("tp");
  EXPECT_THAT(group->aliases(), ElementsAre("attn_tp"));
  EXPECT_THAT(group->describe(), HasSubstr("group tp=attn_tp ranks"));
  EXPECT_THROW(group->add_alias("no/slash"), ConfigError);
}

TEST(GroupCoordinatorTest, MakingALabelAgainBumpsTheGeneration) {
  const World world = World::for_threads(1).front();
  const auto first = GroupCoordinator::create(world, {{0}}, named("tp"));
  const auto second = GroupCoordinator::create(world, {{0}}, named("tp"));
  EXPECT_EQ(first->cpu_group()->getGroupName(), "tp:cpu@0.g0");
  EXPECT_EQ(second->cpu_group()->getGroupName(), "tp:cpu@0.g1");
}

TEST(GroupCoordinatorTest, AThousandCollectivesOfFourThreads) {
  const std::vector<World> worlds = World::for_threads(4);
  test::run_ranks_as_threads(4, [&](int rank) {
    const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1, 2, 3}}, named("tp"));
    for (int i = 0; i < 1000; ++i) {
      at::Tensor value = at::full({8}, static_cast<double>(rank + i));
      group->all_reduce(value);
      ASSERT_EQ(value[7].item<double>(), 6.0 + 4 * i);
    }
  });
}

TEST(GroupCoordinatorTest, CheckedGroupsTurnMismatchesIntoErrorsAndGoOn) {
  const std::vector<World> worlds = World::for_threads(2);
  test::run_ranks_as_threads(2, [&](int rank) {
    GroupOptions options = named("tp");
    options.check = true;
    const auto group = GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1}}, options);
    const auto backend = group->cpu_group()->getBackend(c10::DeviceType::CPU);
    std::vector<at::Tensor> unlike{at::ones({rank + 1})};
    EXPECT_ANY_THROW(backend->allreduce(unlike)->wait()) << "rank " << rank;
    std::vector<at::Tensor> dtypes{at::ones({2}, rank == 0 ? at::kFloat : at::kDouble)};
    EXPECT_ANY_THROW(backend->allreduce(dtypes)->wait()) << "rank " << rank;
    all_reduce_on(*group->cpu_group(), rank, 2);
    EXPECT_EQ(backend->getGroupDesc(), "tp:cpu");
  });
}

}  // namespace
}  // namespace dbg
