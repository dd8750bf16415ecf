// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which lists and options make a group, and which are refused before anything is waited for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/groups.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(GroupCreateTest, RanksOutsideGetNothingAtOnce) {
  const std::vector<World> worlds = World::for_threads(3);
  EXPECT_EQ(GroupCoordinator::create(worlds[2], {{0, 1}}, test::gloo_pair("tp")), nullptr);
}

TEST(GroupCreateTest, ListsThatMakeNoSenseAreRefused) {
  const World world = World::for_threads(3).front();
  EXPECT_THAT(test::complaint_of(world, {}, test::gloo_pair("tp")), HasSubstr("no list of ranks"));
  EXPECT_THAT(test::complaint_of(world, {{0}, {}}, test::gloo_pair("tp")), HasSubstr("is empty"));
  EXPECT_THAT(test::complaint_of(world, {{0, 3}}, test::gloo_pair("tp")),
              HasSubstr("rank 3 in [0, 3] is not one of the world's"));
  EXPECT_THAT(test::complaint_of(world, {{0, -1}}, test::gloo_pair("tp")), HasSubstr("rank -1"));
  EXPECT_THAT(test::complaint_of(world, {{0, 1}, {2, 1}}, test::gloo_pair("tp")), HasSubstr("rank 1 is listed twice"));
  EXPECT_THAT(test::complaint_of(world, {{0, 0}}, test::gloo_pair("tp")), HasSubstr("rank 0 is listed twice"));
  // Also where this rank is in none of the lists.
  EXPECT_THAT(test::complaint_of(world, {{1, 1}}, test::gloo_pair("tp")), HasSubstr("rank 1 is listed twice"));
}

TEST(GroupCreateTest, OptionsThatMakeNoSenseAreRefused) {
  const World world = World::for_threads(1).front();
  GroupOptions options = test::gloo_pair("a/b");
  EXPECT_THAT(test::complaint_of(world, {{0}}, options), HasSubstr("has a '/' at byte 1"));
  options = test::gloo_pair("tp");
  options.device_backend = "glo";
  EXPECT_THAT(test::complaint_of(world, {{0}}, options), HasSubstr("'glo' is not known; there are: auto, gloo, nccl"));
  options = test::gloo_pair("tp");
  options.timeout = milliseconds(-5);
  EXPECT_THAT(test::complaint_of(world, {{0}}, options), HasSubstr("timeout is -5 ms"));
  options = test::gloo_pair("tp");
  options.device_options = c10::make_intrusive<c10d::HashStore>();  // whatever
  EXPECT_THAT(test::complaint_of(world, {{0}}, options), HasSubstr("device_options are given"));
}

TEST(GroupCreateTest, MakingALabelAgainBumpsTheGeneration) {
  const World world = World::for_threads(1).front();
  const auto first = GroupCoordinator::create(world, {{0}}, test::gloo_pair("tp"));
  const auto second = GroupCoordinator::create(world, {{0}}, test::gloo_pair("tp"));
  EXPECT_EQ(first->cpu_group()->getGroupName(), "tp:cpu@0.g0");
  EXPECT_EQ(second->cpu_group()->getGroupName(), "tp:cpu@0.g1");
}

}  // namespace
}  // namespace dbg
