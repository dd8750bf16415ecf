// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What makes a World, and what is refused before anything is waited for.
#include "dbg/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/messages.h"
#include "support/scoped_env.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

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
            formatted("rank 1 of 2 (local rank 1, node 0) over TCPStore 127.0.0.1:{}", server.store_port()));
}

TEST(WorldTest, OnlyTheServerMayLeaveThePortOpen) {
  EXPECT_THAT(test::message_of<ConfigError>([] {
                World::over_tcp({"127.0.0.1", 0, false}, 1, 2);
              }),
              HasSubstr("port is 0 on rank 1, which does not serve it"));
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
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(store, 2, 2); }), HasSubstr("rank is 2 of 2 ranks"));
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(store, 0, 0); }), HasSubstr("world_size is 0"));
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(nullptr, 0, 1); }), HasSubstr("store is null"));
  WorldOptions options;
  options.timeout = milliseconds(0);
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(store, 0, 1, options); }),
              HasSubstr("timeout is 0 ms"));
  options = {};
  options.key_prefix = "";
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(store, 0, 1, options); }),
              HasSubstr("key_prefix is ''"));
}

TEST(WorldTest, AWrongInterfaceIsAnsweredWithThoseThereAre) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  WorldOptions options;
  options.interface = "eth77";
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(store, 0, 1, options); }),
              AllOf(HasSubstr("no network interface 'eth77'"), HasSubstr("lo (127.0.0.1)")));
  const test::ScopedEnv env("GLOO_SOCKET_IFNAME", "lo, eth78");
  EXPECT_THAT(test::message_of<ConfigError>([&] { World::create(store, 0, 1); }), HasSubstr("'eth78'"));
}

TEST(WorldTest, LoopbackIsRefusedWhenTheStoreIsOnAnotherMachine) {
  WorldOptions options;
  options.interface = "lo";
  options.timeout = milliseconds(500);
  // 192.0.2.0/24 is set aside for documentation; 203.0.113.0/24 too, and no machine of a test's has an address in it.
  const std::string message = test::message_of<ConfigError>([&] {
    World::over_tcp({"203.0.113.1", 29500, false}, 1, 2, options);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("loopback (the interface is 'lo')"), HasSubstr("(203.0.113.1)")));
}

}  // namespace
}  // namespace dbg
