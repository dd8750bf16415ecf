// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// All groups of a layout, live: each sums over the ranks it should, equal ones are one, and all of them close.
#include "dbg/model_parallel.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "dbg/error.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GroupOptions on_gloo() {
  GroupOptions options;
  options.device_backend = "gloo";
  options.timeout = std::chrono::seconds(30);
  return options;
}

ParallelSizes two_by_two() {
  ParallelSizes sizes;
  sizes.tp = 2;
  sizes.pp = 2;
  return sizes;
}

// The sum of the ranks over each group is that of the group's members.
void check_every_group(const ModelParallel& parallel) {
  for (const ParallelGroup& group : parallel.layout().groups()) {
    const auto coordinator = parallel.group(group.name);
    const auto own =
        std::find_if(group.group_ranks.begin(), group.group_ranks.end(), [&](const std::vector<int>& ranks) {
          return std::find(ranks.begin(), ranks.end(), parallel.rank()) != ranks.end();
        });
    ASSERT_NE(own, group.group_ranks.end());
    EXPECT_EQ(coordinator->ranks(), *own);
    at::Tensor tensor = at::full({3}, parallel.rank(), at::kLong);
    coordinator->all_reduce(tensor);
    EXPECT_EQ(tensor[0].item<int>(), std::accumulate(own->begin(), own->end(), 0)) << group.name;
    const auto axis = parallel.parallel_state().find(group.name);
    ASSERT_TRUE(axis.has_value());
    EXPECT_EQ(axis->rank, coordinator->rank_in_group());
    EXPECT_EQ(axis->size, coordinator->world_size());
  }
}

TEST(ModelParallelTest, GroupsOfThreadsAreThoseOfTheLayout) {
  const std::vector<World> worlds = World::for_threads(4);
  test::run_ranks_as_threads(4, [&](int rank) {
    const auto parallel = ModelParallel::create(worlds[static_cast<std::size_t>(rank)], two_by_two(), on_gloo());
    check_every_group(*parallel);
    EXPECT_EQ(parallel->group("tp")->cpu_group()->getGroupDesc(), "tp:cpu");
    EXPECT_EQ(parallel->group("pp")->device_group()->getGroupDesc(), "pp:device");
    parallel->close();
    EXPECT_TRUE(parallel->group("tp")->is_closed());
  });
}

DBG_RANK_BODY(checks_its_groups) {
  const auto store = c10::make_intrusive<c10d::FileStore>(context.argument, context.world_size);
  const auto parallel =
      ModelParallel::create(World::create(store, context.rank, context.world_size), two_by_two(), on_gloo());
  check_every_group(*parallel);
  parallel->close();
}

TEST(ModelParallelTest, GroupsOfProcessesAreThoseOfTheLayout) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "ranks in processes of their own race with nobody";
  const test::TempFolder folder;
  test::expect_all_passed(
      test::spawn_ranks({.body = "checks_its_groups", .world_size = 4, .argument = (folder / "store").string()}));
}

TEST(ModelParallelTest, EqualGroupsAreOneWithAliases) {
  ParallelSizes sizes;
  sizes.tp = 4;
  sizes.ep = 4;  // moe_ep are tp's ranks; moe_tp and moe_dp, attn_dp and attn_cp each rank alone
  const std::vector<World> worlds = World::for_threads(4);
  test::run_ranks_as_threads(4, [&](int rank) {
    const auto parallel = ModelParallel::create(worlds[static_cast<std::size_t>(rank)], sizes, on_gloo());
    EXPECT_EQ(parallel->group("tp"), parallel->group("moe_ep"));
    EXPECT_EQ(parallel->group("tp"), parallel->group("attn_tp"));
    EXPECT_THAT(parallel->group("tp")->aliases(), ElementsAre("attn_tp", "moe_ep"));
    EXPECT_EQ(parallel->group("pp"), parallel->group("moe_tp"));
    EXPECT_NE(parallel->group("tp"), parallel->group("pp"));
    check_every_group(*parallel);
  });
}

TEST(ModelParallelTest, AGroupOutlivesTheWhole) {
  std::shared_ptr<GroupCoordinator> kept;
  {
    const auto parallel = ModelParallel::create(World::for_threads(1).front(), {}, on_gloo());
    kept = parallel->group("tp");
  }
  EXPECT_FALSE(kept->is_closed());
  kept->barrier();
}

std::string complaint_of(const ParallelSizes& sizes, const GroupOptions& options) {
  try {
    ModelParallel::create(World::for_threads(1).front(), sizes, options)->group("dp");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

TEST(ModelParallelTest, WrongSizesAndNamesAreConfigErrors) {
  EXPECT_THAT(complaint_of(two_by_two(), on_gloo()), HasSubstr("= 4 ranks, and the world has 1"));
  EXPECT_THAT(complaint_of({}, on_gloo()), HasSubstr("no group 'dp' in this layout; there are tp, pp"));
  GroupOptions named = on_gloo();
  named.group_name = "mine";
  EXPECT_THAT(complaint_of({}, named), HasSubstr("group_name 'mine'"));
}

}  // namespace
}  // namespace dbg
