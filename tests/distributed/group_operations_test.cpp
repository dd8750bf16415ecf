// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A group's collectives, among threads and processes; what they compute is tested where they are.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "distributed/groups.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

void use_each_collective(const World& world) {
  std::vector<int> everyone;
  for (int rank = 0; rank < world.world_size(); ++rank) everyone.push_back(rank);
  const auto group = GroupCoordinator::create(world, {everyone}, test::gloo_pair("tp"));
  const int size = group->world_size();
  const int place = group->rank_in_group();
  at::Tensor value = at::full({2}, place + 1.0);
  group->all_reduce(value);
  EXPECT_EQ(value[0].item<double>(), size * (size + 1) / 2.0);
  at::Tensor largest = at::full({2}, place + 1.0);
  group->all_reduce(largest, ReduceOp::max);
  EXPECT_EQ(largest[0].item<double>(), size);
  EXPECT_EQ(group->all_gather(at::full({2, 3}, place), 0).sizes(), at::IntArrayRef({2 * size, 3}));
  EXPECT_EQ(group->all_gather_list(at::full({1}, place)).size(), static_cast<std::size_t>(size));
  EXPECT_EQ(group->reduce_scatter(at::ones({size, 2})).sizes(), at::IntArrayRef({1, 2}));
  EXPECT_EQ(group->gather(at::ones({2}), 0, 0).defined(), place == 0);
  at::Tensor from_last = at::full({1}, place + 5.0);
  group->broadcast(from_last, size - 1);
  EXPECT_EQ(from_last.item<double>(), size + 4.0);
  group->barrier();
  group->monitored_barrier();
}

TEST(GroupOperationsTest, EachCollectiveAmongThreads) {
  for (const int size : {1, 2, 4}) {
    const std::vector<World> worlds = World::for_threads(size);
    test::run_ranks_as_threads(size, [&](int rank) { use_each_collective(worlds[static_cast<std::size_t>(rank)]); });
  }
}

DBG_RANK_BODY(uses_each_collective) {
  use_each_collective(World::over_file(context.argument, context.rank, context.world_size));
}

TEST(GroupOperationsTest, EachCollectiveAmongProcesses) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "ranks in processes of their own race with nobody";
  for (const int size : {2, 4}) {
    const test::TempFolder folder;
    test::expect_all_passed(test::spawn_ranks(
        {.body = "uses_each_collective", .world_size = size, .argument = (folder / "store").string()}));
  }
}

TEST(GroupOperationsTest, AThousandCollectivesOfFourThreads) {
  const std::vector<World> worlds = World::for_threads(4);
  test::run_ranks_as_threads(4, [&](int rank) {
    const auto group =
        GroupCoordinator::create(worlds[static_cast<std::size_t>(rank)], {{0, 1, 2, 3}}, test::gloo_pair("tp"));
    for (int i = 0; i < 1000; ++i) {
      at::Tensor value = at::full({8}, static_cast<double>(rank + i));
      group->all_reduce(value);
      ASSERT_EQ(value[7].item<double>(), 6.0 + 4 * i);
    }
  });
}

}  // namespace
}  // namespace dbg
