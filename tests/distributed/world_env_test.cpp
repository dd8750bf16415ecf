// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A World from torchrun's variables: all of them, none, some, and such as make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "dbg/error.h"
#include "dbg/world.h"
#include "distributed/messages.h"
#include "support/scoped_env.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using test::message_of;
using testing::HasSubstr;

// The whole environment that from_env looks at.
class WorldEnv {
 public:
  using Values = std::vector<std::pair<std::string, std::string>>;
  explicit WorldEnv(const Values& values) {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "LOCAL_WORLD_SIZE",
          "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "GLOO_SOCKET_IFNAME"}) {
      all_.push_back(std::make_unique<test::ScopedEnv>(name, std::nullopt));
    }
    for (const auto& [name, value] : values) all_.push_back(std::make_unique<test::ScopedEnv>(name, value));
  }
  ~WorldEnv() {
    while (!all_.empty()) all_.pop_back();  // the last first, so that what was there comes back
  }

 private:
  std::vector<std::unique_ptr<test::ScopedEnv>> all_;
};

TEST(WorldEnvTest, WithoutVariablesItIsAloneInMemory) {
  const WorldEnv env({});
  const World world = World::from_env();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.world_size(), 1);
  EXPECT_EQ(world.describe(), "rank 0 of 1 (local rank 0, node 0) over HashStore");
  world.store()->set("key", std::vector<std::uint8_t>{1});
  // A client's set() waits for no answer.
  EXPECT_NO_THROW(world.store()->wait({"key"}, milliseconds(5000)));
}

TEST(WorldEnvTest, AHalfSetEnvironmentIsRefusedWithWhatIsMissing) {
  const WorldEnv env({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  EXPECT_THAT(message_of<ConfigError>([] { World::from_env(); }),
              HasSubstr("RANK, WORLD_SIZE, MASTER_PORT set and LOCAL_RANK, MASTER_ADDR missing"));
}

TEST(WorldEnvTest, ValuesThatMakeNoSenseAreNamed) {
  const auto message = [](const std::string& name, const std::string& value) {
    const WorldEnv env({{"RANK", "0"},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", "0"},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "29500"},
                        {name, value}});
    return message_of<ConfigError>([] { World::from_env(); });
  };
  EXPECT_THAT(message("RANK", "2"), HasSubstr("RANK is '2'; it is a whole number from 0 to 1"));
  EXPECT_THAT(message("WORLD_SIZE", "two"), HasSubstr("WORLD_SIZE is 'two'"));
  EXPECT_THAT(message("LOCAL_RANK", "-1"), HasSubstr("LOCAL_RANK is '-1'"));
  EXPECT_THAT(message("MASTER_PORT", "66000"), HasSubstr("MASTER_PORT is '66000'"));
  EXPECT_THAT(message("MASTER_PORT", "0"), HasSubstr("MASTER_PORT is '0'"));
}

// Where nobody says which machine: all hold equally many ranks.
TEST(WorldEnvTest, TheMachineFollowsFromHowManyRanksEachHolds) {
  const World agent = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  const auto world = [&](const std::string& per_node) {
    const WorldEnv env({{"RANK", "5"},
                        {"WORLD_SIZE", "8"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", per_node},
                        {"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(agent.store_port())}});
    return World::from_env(milliseconds(5000));
  };
  EXPECT_EQ(world("2").node_id(), 2);
  EXPECT_EQ(world("4").node_id(), 1);
  EXPECT_EQ(world("").node_id(), 0);
  EXPECT_THAT(message_of<ConfigError>([&] { world("0"); }), HasSubstr("LOCAL_WORLD_SIZE is '0'"));
}

TEST(WorldEnvTest, TorchrunsAgentKeepsItsStoreAndRestartsDoNotMeetOldKeys) {
  const World agent = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  const WorldEnv env({{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"LOCAL_RANK", "0"},
                      {"GROUP_RANK", "3"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(agent.store_port())},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RESTART_COUNT", "2"}});
  const World world = World::from_env(milliseconds(5000));
  EXPECT_EQ(world.key_prefix(), "dbg/attempt_2");
  EXPECT_EQ(world.node_id(), 3);
  agent.store()->set("key", std::vector<std::uint8_t>{1});
  // A client's set() waits for no answer.
  EXPECT_NO_THROW(world.store()->wait({"key"}, milliseconds(5000)));
}

}  // namespace
}  // namespace dbg
