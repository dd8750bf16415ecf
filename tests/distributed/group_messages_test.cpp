// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A group's objects, tensor dicts and messages, among threads and processes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "distributed/groups.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

void exchange(const World& world) {
  std::vector<int> everyone;
  for (int rank = 0; rank < world.world_size(); ++rank) everyone.push_back(rank);
  const auto group = GroupCoordinator::create(world, {everyone}, test::gloo_pair("pp"));
  const int size = group->world_size();
  const int place = group->rank_in_group();
  EXPECT_EQ(group->broadcast_object(std::int64_t{place + 40}).toInt(), 40);
  EXPECT_EQ(group->all_gather_object(std::int64_t{place}).back().toInt(), size - 1);
  EXPECT_EQ(group->gather_object("x", 0).size(), place == 0 ? static_cast<std::size_t>(size) : 0U);
  const TensorDict dict =
      group->broadcast_tensor_dict({{"hidden", at::full({2}, place + 3.0)}, {"step", std::int64_t{3}}});
  ASSERT_EQ(dict.size(), 2U);
  EXPECT_EQ(dict[0].second.toTensor()[1].item<double>(), 3.0);
  if (size == 1) return;
  // Around: everyone to the next.
  if (place == 0) {
    group->send(at::full({2}, 8.0), 1);
    group->send_object("hello", 1);
    group->send_tensor_dict({{"a", at::ones({1})}});
  }
  if (place == 1) {
    at::Tensor got = at::zeros({2});
    group->recv(got, 0);
    EXPECT_EQ(got[1].item<double>(), 8.0);
    EXPECT_EQ(group->recv_object(0).toStringRef(), "hello");
    EXPECT_EQ(group->recv_tensor_dict().at(0).first, "a");
  }
}

TEST(GroupMessagesTest, AmongThreads) {
  for (const int size : {1, 2, 4}) {
    const std::vector<World> worlds = World::for_threads(size);
    test::run_ranks_as_threads(size, [&](int rank) { exchange(worlds[static_cast<std::size_t>(rank)]); });
  }
}

DBG_RANK_BODY(exchanges_messages) {
  exchange(World::over_file(context.argument, context.rank, context.world_size));
}

TEST(GroupMessagesTest, AmongProcesses) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "ranks in processes of their own race with nobody";
  for (const int size : {2, 4}) {
    const test::TempFolder folder;
    test::expect_all_passed(
        test::spawn_ranks({.body = "exchanges_messages", .world_size = size, .argument = (folder / "store").string()}));
  }
}

}  // namespace
}  // namespace dbg
