// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What is said while the sides meet, against the keys that a real gloo group leaves.
#include "graft/reminder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/group_coordinator.h"
#include "dbg/world.h"
#include "graft/sides.h"

namespace dbg::graft {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

class ReminderTest : public testing::Test {
 protected:
  /// Whether so many lines with `part` come within a time that no sound run needs.
  bool is_said(const std::string& part, std::size_t count = 1) {
    const auto deadline = steady_clock::now() + std::chrono::seconds(20);
    while (log_.count(part) < count) {
      if (steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  const GraftConfig config_ = test::graft_config(2, 1);
  const Reminder::Periods often_{milliseconds(2), milliseconds(10)};
  test::LogCapture log_;
};

TEST_F(ReminderTest, NamesWhoIsMissingByWhatGlooLeaves) {
  const std::vector<World> worlds = World::for_threads(2);
  Reminder reminder(config_, {2, 1}, often_);
  EXPECT_TRUE(is_said(
      formatted("waiting for baseline rank 0 to serve the store at 127.0.0.1:{} (0 s of 30)", config_.master_port)));
  reminder.look_into(worlds[0].store());
  EXPECT_TRUE(
      is_said("waiting for baseline rank 0, baseline rank 1, target rank 0 (0 s of 30); a Python peer needs "
              "DUMPER_GRAFTER_BACKEND=gloo, and the same group name 'graft'"));
  // Two of the three have come, by the keys of a real group.
  test::run_ranks_as_threads(2, [&](int rank) {
    GroupOptions options;
    options.group_name = "graft";
    options.timeout = std::chrono::seconds(20);
    const World& world = worlds[static_cast<std::size_t>(rank)];
    const auto group = GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, "graft", {0, 1}}, options);
    EXPECT_TRUE(is_said("waiting for target rank 0 (0 s of 30)"));
    group->barrier();
  });
  EXPECT_EQ(log_.count("uses nccl"), 0u);
  EXPECT_FALSE(reminder.saw_nccl());
}

TEST_F(ReminderTest, SaysOnceThatAPeerUsesNccl) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Reminder reminder(config_, {2, 1}, often_);
  reminder.look_into(store);
  EXPECT_TRUE(is_said("waiting for baseline rank 0, "));
  store->set("graft/graft//cuda//0", std::vector<std::uint8_t>{1});
  EXPECT_TRUE(is_said("the peer uses nccl, and this side gloo"));
  EXPECT_TRUE(is_said("waiting for baseline rank 0, ", log_.count("waiting for baseline rank 0, ") + 2));
  EXPECT_EQ(log_.count("the peer uses nccl"), 1u);
  EXPECT_TRUE(reminder.saw_nccl());
}

}  // namespace
}  // namespace dbg::graft
