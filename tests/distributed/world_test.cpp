// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where a World comes from: the environment, a TCPStore, a file, the caller's store; and what is refused.
#include "dbg/world.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "dbg/error.h"
#include "distributed/network_interfaces.h"
#include "support/rank_processes.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
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

template <class Failure, class Code>
std::string message_of(Code&& code) {
  try {
    code();
  } catch (const Failure& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(WorldTest, WithoutVariablesItIsAloneInMemory) {
  const WorldEnv env({});
  const World world = World::from_env();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.world_size(), 1);
  EXPECT_EQ(world.describe(), "rank 0 of 1 (local rank 0, node 0) over HashStore");
  world.store()->set("key", std::vector<std::uint8_t>{1});
  EXPECT_TRUE(world.store()->check({"key"}));
}

TEST(WorldTest, AHalfSetEnvironmentIsRefusedWithWhatIsMissing) {
  const WorldEnv env({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  EXPECT_THAT(message_of<ConfigError>([] { World::from_env(); }),
              HasSubstr("RANK, WORLD_SIZE, MASTER_PORT set and LOCAL_RANK, MASTER_ADDR missing"));
}

TEST(WorldTest, ValuesThatMakeNoSenseAreNamed) {
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

TEST(WorldTest, AnyFreePortIsTakenAndToldByTheServer) {
  WorldOptions options;
  options.timeout = milliseconds(5000);
  const World server = World::over_tcp({"127.0.0.1", 0, true}, 0, 2, options);
  ASSERT_NE(server.store_port(), 0);
  options.local_rank = 1;
  const World client = World::over_tcp({"127.0.0.1", server.store_port(), false}, 1, 2, options);
  server.store()->set("from server", std::vector<std::uint8_t>{7});
  EXPECT_EQ(client.store()->get("from server"), std::vector<std::uint8_t>{7});
  EXPECT_EQ(client.describe(),
            fmt::format("rank 1 of 2 (local rank 1, node 0) over TCPStore 127.0.0.1:{}", server.store_port()));
}

TEST(WorldTest, OnlyTheServerMayLeaveThePortOpen) {
  EXPECT_THAT(message_of<ConfigError>([] {
                World::over_tcp({"127.0.0.1", 0, false}, 1, 2);
              }),
              HasSubstr("port is 0 on rank 1, which does not serve it"));
}

TEST(WorldTest, AStoreThatNobodyServesIsSaidWithinTheTimeout) {
  // A port that was free a moment ago.
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  WorldOptions options;
  options.timeout = milliseconds(1000);
  const auto began = std::chrono::steady_clock::now();
  try {
    World::over_tcp({"127.0.0.1", port, false}, 1, 2, options);
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::store_down);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("127.0.0.1:{}", port)), HasSubstr("as a client")));
    EXPECT_GE(error.failure().elapsed, milliseconds(500));
  }
  EXPECT_LE(std::chrono::steady_clock::now() - began, milliseconds(2000));
}

TEST(WorldTest, TwoServersOfOneProcessShareThePort) {
  const World first = World::over_tcp({"127.0.0.1", 0, true}, 0, 2);
  const World second = World::over_tcp({"127.0.0.1", first.store_port(), true}, 1, 2);
  first.store()->set("key", std::vector<std::uint8_t>{3});
  EXPECT_TRUE(second.store()->check({"key"}));
}

TEST(WorldTest, APortThatIsTakenIsAnErrorOfTheServer) {
  const World first = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  const auto results = test::spawn_ranks(
      {.body = "serves_a_taken_port", .world_size = 1, .argument = std::to_string(first.store_port())});
  test::expect_all_passed(results);
}

DBG_RANK_BODY(serves_a_taken_port) {
  const auto port = static_cast<std::uint16_t>(std::stoi(context.argument));
  WorldOptions options;
  options.timeout = milliseconds(2000);
  EXPECT_THAT(message_of<CommError>([&] {
                World::over_tcp({"127.0.0.1", port, true}, 0, 1, options);
              }),
              AllOf(HasSubstr("as its server"), HasSubstr(std::to_string(port))));
}

TEST(WorldTest, RanksMeetInAFile) {
  const test::TempFolder folder;
  const World first = World::over_file(folder / "store", 0, 2);
  const World second = World::over_file(folder / "store", 1, 2);
  first.store()->set("key", std::vector<std::uint8_t>{5});
  EXPECT_EQ(second.store()->get("key"), std::vector<std::uint8_t>{5});
}

TEST(WorldTest, AFileThatCannotBeMadeIsAnError) {
  WorldOptions options;
  options.timeout = milliseconds(500);
  EXPECT_THAT(message_of<CommError>([&] { World::over_file("/nowhere/at/all", 0, 1, options); }),
              HasSubstr("opening the FileStore /nowhere/at/all"));
}

TEST(WorldTest, ThreadsGetOneStoreAndEachItsRank) {
  const std::vector<World> worlds = World::for_threads(3);
  ASSERT_EQ(worlds.size(), 3U);
  worlds[0].store()->set("key", std::vector<std::uint8_t>{1});
  EXPECT_TRUE(worlds[2].store()->check({"key"}));
  EXPECT_EQ(worlds[2].describe(), "rank 2 of 3 (local rank 2, node 0) over HashStore");
}

TEST(WorldTest, RanksOutsideTheWorldAreRefused) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(store, 2, 2); }), HasSubstr("rank is 2 of 2 ranks"));
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(store, 0, 0); }), HasSubstr("world_size is 0"));
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(nullptr, 0, 1); }), HasSubstr("store is null"));
  WorldOptions options;
  options.timeout = milliseconds(0);
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(store, 0, 1, options); }), HasSubstr("timeout is 0 ms"));
  options = {};
  options.key_prefix = "";
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(store, 0, 1, options); }), HasSubstr("key_prefix is ''"));
}

TEST(WorldTest, AWrongInterfaceIsAnsweredWithThoseThereAre) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  WorldOptions options;
  options.interface = "eth77";
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(store, 0, 1, options); }),
              AllOf(HasSubstr("no network interface 'eth77'"), HasSubstr("lo (127.0.0.1)")));
  const test::ScopedEnv env("GLOO_SOCKET_IFNAME", "lo, eth78");
  EXPECT_THAT(message_of<ConfigError>([&] { World::create(store, 0, 1); }), HasSubstr("'eth78'"));
}

TEST(WorldTest, LoopbackIsRefusedWhenTheStoreIsOnAnotherMachine) {
  WorldOptions options;
  options.interface = "lo";
  options.timeout = milliseconds(500);
  // 192.0.2.0/24 is set aside for documentation; 203.0.113.0/24 too, and no machine of a test's has an address in it.
  const std::string message = message_of<ConfigError>([&] {
    World::over_tcp({"203.0.113.1", 29500, false}, 1, 2, options);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("loopback (the interface is 'lo')"), HasSubstr("(203.0.113.1)")));
}

TEST(WorldTest, TorchrunsAgentKeepsItsStoreAndRestartsDoNotMeetOldKeys) {
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
  EXPECT_TRUE(world.store()->check({"key"}));
}

TEST(WorldTest, InterfaceNamesAreSplitAndTrimmed) {
  EXPECT_EQ(distributed::interface_names(" eth0 ,eth1,, "), (std::vector<std::string>{"eth0", "eth1"}));
  EXPECT_TRUE(distributed::interface_names("").empty());
}

}  // namespace
}  // namespace dbg
