// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups and backends that somebody else made: labelled, used, and still theirs afterwards.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/groups.h"
#include "distributed/messages.h"
#include "support/log_capture.h"
#include "support/rank_threads.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using test::expect_works;
using test::somebodys_gloo;
using testing::HasSubstr;

TEST(GroupAdoptTest, ABareBackendIsLabelledAndSurvivesUs) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto backend = somebodys_gloo(rank, 2, store);
    AdoptOptions options;
    options.group_name = "tp";
    options.ranks = {4, 6};
    {
      const auto group = GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options);
      EXPECT_EQ(backend->getGroupDesc(), "tp:device");
      EXPECT_EQ(group->rank(), rank == 0 ? 4 : 6);
      at::Tensor ones = at::ones({3});
      group->all_reduce(ones);
      EXPECT_EQ(ones[0].item<float>(), 2.0F);
      EXPECT_THAT(group->describe(), HasSubstr("gloo (adopted)"));
    }
    expect_works(*backend);
  });
}

// As Python has it with TORCH_DISTRIBUTED_DEBUG=DETAIL.
TEST(GroupAdoptTest, WhatAWrapperWrapsIsLabelledToo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto inner = somebodys_gloo(0, 1, store);
  const auto helper = somebodys_gloo(0, 1, c10::make_intrusive<c10d::PrefixStore>("helper", store));
  const auto wrapper = c10::make_intrusive<c10d::ProcessGroupWrapper>(inner, helper);
  AdoptOptions options;
  options.group_name = "tp";
  const auto group = GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(wrapper), {}, options);
  EXPECT_EQ(wrapper->getGroupDesc(), "tp:device");
  EXPECT_EQ(inner->getGroupDesc(), "tp:device");
  EXPECT_THAT(group->label_report().text(), HasSubstr("its helper can't be reached and stays unlabelled"));
  group->all_reduce(at::ones({2}));
}

TEST(GroupAdoptTest, AMissingCpuHalfIsMadeFromTheWorld) {
  const std::vector<World> worlds = World::for_threads(2);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  test::run_ranks_as_threads(2, [&](int rank) {
    const auto backend = somebodys_gloo(rank, 2, store);
    AdoptOptions options;
    options.group_name = "tp";
    options.timeout = milliseconds(20000);
    const auto group = GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options,
                                               &worlds[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(group->cpu_group()->getGroupDesc(), "tp:cpu");
    EXPECT_NE(group->cpu_group(), group->device_group());
    group->barrier();
  });
}

TEST(GroupAdoptTest, AGroupOfTheRegistryIsFoundByItsName) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto backend = somebodys_gloo(0, 1, store);
  auto theirs = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  theirs->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  theirs->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  theirs->setGroupName("7");
  theirs->setGroupDesc("undefined");
  c10d::register_process_group("7", theirs);
  const test::LogCapture log;
  AdoptOptions options;
  options.group_name = "my group";
  {
    const auto group = GroupCoordinator::adopt_registered("7", options);
    EXPECT_EQ(theirs->getGroupDesc(), "my_group:device");
    EXPECT_EQ(theirs->getGroupName(), "7");
    EXPECT_EQ(group->cpu_group(), theirs);
    EXPECT_EQ(log.count("the group name 'my group' can't be a label as it is; it is labelled 'my_group'"), 1U);
  }
  EXPECT_EQ(c10d::resolve_process_group("7"), theirs);
  expect_works(*backend);
  c10d::unregister_process_group("7");
  EXPECT_THROW(GroupCoordinator::adopt_registered("7", options), ConfigError);
}

TEST(GroupAdoptTest, WhatDoesNotFitIsRefused) {
  AdoptOptions options;
  options.ranks = {0, 1, 2};
  const auto backend = somebodys_gloo(0, 1, c10::make_intrusive<c10d::HashStore>());
  EXPECT_THROW(GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options), ConfigError);
  EXPECT_THROW(GroupCoordinator::adopt(c10::intrusive_ptr<c10d::ProcessGroup>(), {}, options), ConfigError);
}

TEST(GroupAdoptTest, RanksThatAreNotTheWorldsAreRefused) {
  const World world = World::for_threads(3).back();
  const auto backend = somebodys_gloo(0, 1, c10::make_intrusive<c10d::HashStore>());
  AdoptOptions options;
  const auto adopt = [&] {
    return GroupCoordinator::adopt(c10::intrusive_ptr<c10d::Backend>(backend), {}, options, &world);
  };
  EXPECT_THAT(test::message_of<ConfigError>(adopt), HasSubstr("hence global rank 0 by the ranks [0], and rank 2 of"));
  options.ranks = {2};
  EXPECT_EQ(adopt()->rank(), 2);
}

}  // namespace
}  // namespace dbg
