// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The board in a World's store: whoever comes first, told apart by launch, and never waited for.
#include "global/store_exp_name_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/record_files.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"
#include "support/waits.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::ScopedEnv;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class StoreExpNameBoardTest : public testing::Test {
 protected:
  static ExpNameClaim claim(const World& world, const std::string& proposal) {
    return StoreExpNameBoard(world).claim(proposal);
  }
  static std::string name(const World& world, const std::string& proposal) { return claim(world, proposal).exp_name; }
  // What a claim that fails says; the time it took is within `bound`.
  static std::string failure_of(const World& world, milliseconds bound) {
    const auto began = steady_clock::now();
    try {
      return "it gave " + name(world, "dump_a");
    } catch (const CommError& error) {
      EXPECT_EQ(error.kind(), CommErrorKind::store_down);
      EXPECT_LT(steady_clock::now() - began, bound);
      return error.what();
    }
  }
  static std::vector<World> worlds_over_tcp() {
    std::vector<World> worlds = {World::over_tcp({"127.0.0.1", 0, true}, 0, 2)};
    worlds.push_back(World::over_tcp({"127.0.0.1", worlds.front().store_port(), false}, 1, 2));
    return worlds;
  }

  ScopedEnv run_id_{"TORCHELASTIC_RUN_ID", std::nullopt};
  ScopedEnv restart_{"TORCHELASTIC_RESTART_COUNT", std::nullopt};
};

TEST_F(StoreExpNameBoardTest, FirstComesFirst) {
  const std::vector<World> worlds = World::for_threads(2);
  const ExpNameClaim first = claim(worlds.at(1), "dump_one");
  const ExpNameClaim second = claim(worlds.at(0), "dump_zero");
  EXPECT_EQ(first.exp_name, "dump_one");
  EXPECT_TRUE(first.is_first);
  EXPECT_EQ(second.exp_name, "dump_one");
  EXPECT_FALSE(second.is_first);
}

TEST_F(StoreExpNameBoardTest, ThreadsThatClaimAtOnceAgree) {
  for (int round = 0; round < 20; ++round) {
    const std::vector<World> worlds = World::for_threads(8);
    std::vector<std::string> names(8);
    test::run_ranks_as_threads(8, [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      names[i] = name(worlds[i], formatted("dump_{}", rank));
    });
    EXPECT_THAT(names, Each(names.front())) << "round " << round;
  }
}

TEST_F(StoreExpNameBoardTest, LaunchesOnOneStoreAreToldApart) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  WorldOptions other;
  other.key_prefix = "another";
  std::set<std::string> names = {name(World::create(store, 0, 2), "dump_plain"),
                                 name(World::create(store, 0, 2, other), "dump_prefix")};
  for (const char* run_id : {"a", "b"}) {
    for (const char* restart : {"0", "1"}) {
      const ScopedEnv run("TORCHELASTIC_RUN_ID", run_id);
      const ScopedEnv count("TORCHELASTIC_RESTART_COUNT", restart);
      const std::string own = name(World::create(store, 0, 2), formatted("dump_{}{}", run_id, restart));
      names.insert(own);
      EXPECT_EQ(name(World::create(store, 1, 2), "dump_late"), own);
    }
  }
  EXPECT_EQ(names.size(), 6u);
}

// Whoever may write into the store must not say where records go.
TEST_F(StoreExpNameBoardTest, WhatIsNoFoldersNameIsRefused) {
  for (const char* evil : {"../evil", "..", "a/b", "/tmp", "a\nb", ".dbg_exp_names_0"}) {
    const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
    store->set("dbg/exp_name", std::string(evil));
    EXPECT_THAT(failure_of(World::create(store, 1, 2), seconds(4)), HasSubstr("'dbg/exp_name' is no folder's name"));
  }
}

TEST_F(StoreExpNameBoardTest, AServerThatIsGoneIsSaidAtOnce) {
  for (const bool is_prefixed : {false, true}) {
    std::vector<World> worlds = worlds_over_tcp();
    const std::uint16_t port = worlds.back().store_port();
    World client = worlds.back();
    if (is_prefixed) {
      client = World::create(c10::make_intrusive<c10d::PrefixStore>("own", client.store()), 1, 2);
    }
    worlds.clear();
    EXPECT_THAT(failure_of(client, seconds(4)),
                AllOf(HasSubstr(formatted("its server at 127.0.0.1:{} is gone", port)), HasSubstr("on rank 1"),
                      HasSubstr("Set DUMPER_EXP_NAME on all nodes")));
  }
}

DBG_RANK_BODY(serve_a_store) {
  const World world = World::over_tcp({"127.0.0.1", 0, true}, 0, 2);
  test::write_text(context.argument, std::to_string(world.store_port()));
  EXPECT_EQ(::write(STDOUT_FILENO, "serving\n", 8), 8);
  test::wait_forever_here();
}

// Its machine goes on to take connections for it.
TEST_F(StoreExpNameBoardTest, AServerThatIsStoppedHoldsNobodyUpForLong) {
  const test::TempFolder folder;
  const std::string port_file = folder / "port";
  test::RankProcesses server({.body = "serve_a_store", .argument = port_file});
  server.wait_for_output(0, "serving");
  WorldOptions options;
  options.timeout = seconds(1);
  const auto port = static_cast<std::uint16_t>(std::stoi(test::bytes_of(port_file)));
  const World world = World::over_tcp({"127.0.0.1", port, false}, 1, 2, options);
  server.stop(0);
  EXPECT_THAT(failure_of(world, seconds(5)), HasSubstr(formatted("TCPStore 127.0.0.1:{}: it did not answer", port)));
}

// A TCPStore's client lets one operation through at a time.
TEST_F(StoreExpNameBoardTest, AThreadThatWaitsInTheStoreHoldsNobodyUp) {
  const std::vector<World> worlds = worlds_over_tcp();
  const auto client = worlds.at(1).store();
  std::thread waiting([&] { EXPECT_NO_THROW(client->wait({"go"}, seconds(60))); });
  // It is in there once another operation does not come back.
  std::vector<std::future<bool>> probes;
  do {
    probes.push_back(std::async(std::launch::async, [&] { return client->check({"probe"}); }));
  } while (probes.back().wait_for(milliseconds(200)) == std::future_status::ready);
  EXPECT_NO_THROW(EXPECT_EQ(name(worlds.at(1), "dump_a"), "dump_a"));
  worlds.at(0).store()->set("go", std::string("1"));
  waiting.join();
}

}  // namespace
}  // namespace dbg
