// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Dumpers that are attached to a World: one folder's name for all its ranks, and records whatever its store does.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "dbg/runtime.h"
#include "dbg/world.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/record_files.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::ScopedEnv;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

std::vector<World> worlds_over_tcp() {
  std::vector<World> worlds = {World::over_tcp({"127.0.0.1", 0, true}, 0, 2)};
  worlds.push_back(World::over_tcp({"127.0.0.1", worlds.front().store_port(), false}, 1, 2));
  return worlds;
}

void dump_as(Dumper& dumper, int rank) {
  const ParticipantScope bound(std::make_shared<const Participant>(rank, 2));
  dumper.dump("x", at::ones({1}));
}

// A store that is there and does nothing.
class RefusingStore final : public c10d::Store {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<RefusingStore>(); }
  void set(const std::string&, const std::vector<std::uint8_t>&) override { fail(); }
  std::vector<std::uint8_t> compareSet(const std::string&, const std::vector<std::uint8_t>&,
                                       const std::vector<std::uint8_t>&) override {
    fail();
  }
  std::vector<std::uint8_t> get(const std::string&) override { fail(); }
  std::int64_t add(const std::string&, std::int64_t) override { fail(); }
  bool deleteKey(const std::string&) override { fail(); }
  bool check(const std::vector<std::string>&) override { fail(); }
  std::int64_t getNumKeys() override { fail(); }
  void wait(const std::vector<std::string>&) override { fail(); }
  void wait(const std::vector<std::string>&, const milliseconds&) override { fail(); }

 private:
  [[noreturn]] static void fail() { throw std::runtime_error("the door is shut"); }
};

// A launch over two nodes, which no launcher described.
class AttachTest : public testing::Test {
 protected:
  DumperConfig node(const std::string& name) const { return test::quiet_config(folder_ / name); }
  std::vector<std::string> names_on(const std::string& name) const { return test::experiments_in(folder_ / name); }
  std::string name_on(const std::string& name) const {
    const std::vector<std::string> names = names_on(name);
    EXPECT_THAT(names, SizeIs(1)) << name;
    return names.empty() ? "none" : names.front();
  }
  // One record of rank 0 on a node of its own; returns where it went.
  std::string name_over(const World& world, const std::string& own_node) const {
    Dumper dumper(node(own_node));
    dumper.attach(world);
    dump_as(dumper, 0);
    return name_on(own_node);
  }
  static std::size_t warnings(const test::LogCapture& log) {
    const auto lines = log.lines();
    return static_cast<std::size_t>(
        std::count_if(lines.begin(), lines.end(), [](const auto& line) { return line.level >= LogLevel::warning; }));
  }

  test::TempFolder folder_;
  ScopedEnv world_size_{"WORLD_SIZE", "2"};
  ScopedEnv local_world_size_{"LOCAL_WORLD_SIZE", "1"};
  ScopedEnv run_id_{"TORCHELASTIC_RUN_ID", std::nullopt};
  ScopedEnv restart_{"TORCHELASTIC_RESTART_COUNT", std::nullopt};
  ScopedEnv address_{"MASTER_ADDR", std::nullopt};
  ScopedEnv port_{"MASTER_PORT", std::nullopt};
};

TEST_F(AttachTest, RanksOfUnlikeFoldersShareOneNameOverAnyStore) {
  const test::LogCapture log;
  const auto expect_one_name = [&](std::vector<World> worlds, const std::string& store) {
    Dumper first(node(store + "0"));
    Dumper second(node(store + "1"));
    second.attach(worlds.at(1));
    first.attach(worlds.at(0));
    worlds.clear();  // nothing of them is kept
    dump_as(first, 0);
    dump_as(second, 1);
    EXPECT_EQ(name_on(store + "0"), name_on(store + "1"));
    return name_on(store + "0");
  };
  const std::string file = folder_ / "store";
  const std::string over_memory = expect_one_name(World::for_threads(2), "memory");
  const std::string over_file = expect_one_name({World::over_file(file, 0, 2), World::over_file(file, 1, 2)}, "file");
  const std::string over_tcp = expect_one_name(worlds_over_tcp(), "tcp");
  EXPECT_NE(over_memory, over_file);
  EXPECT_NE(over_file, over_tcp);
  EXPECT_EQ(warnings(log), 0u) << log.lines().front().text;
  EXPECT_FALSE(fs::exists(file)) << "torch removes it once all ranks are done, and they are";
}

TEST_F(AttachTest, NothingOfTheWorldIsKept) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Dumper dumper(node("a"));
  dumper.attach(World::create(store, 0, 2));
  EXPECT_EQ(store.use_count(), 1u);
}

TEST_F(AttachTest, ThreadsThatShareADumperAttachEach) {
  const test::LogCapture log;
  const std::vector<World> worlds = World::for_threads(4);
  Dumper dumper(node("a"));
  test::run_ranks_as_threads(4, [&](int rank) {
    dumper.attach(worlds.at(static_cast<std::size_t>(rank)));
    dumper.dump("x", at::ones({1}));
  });
  EXPECT_THAT(test::tags_in(folder_ / "a" / name_on("a"), "rank"), ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(warnings(log), 0u);
}

TEST_F(AttachTest, ANameThatIsAgreedWhileOffCountsOnceOnAndOutlastsAReset) {
  const std::vector<World> worlds = World::for_threads(2);
  DumperConfig off = node("a");
  off.enable = false;
  Dumper dumper(off);
  dumper.attach(worlds.at(0));
  const std::string name = name_over(worlds.at(1), "b");
  dumper.configure({"enable=1"});
  dump_as(dumper, 0);
  {
    const ParticipantScope bound(std::make_shared<const Participant>(0, 2));
    dumper.reset();
  }
  dump_as(dumper, 0);
  EXPECT_THAT(names_on("a"), ElementsAre(name));
  EXPECT_EQ(name_over(worlds.at(0), "a"), name) << "a second Dumper of the same rank";
}

TEST_F(AttachTest, AGivenNameWins) {
  const test::LogCapture log;
  DumperConfig named = node("a");
  named.exp_name = "run";
  Dumper dumper(named);
  dumper.attach(World::create(c10::make_intrusive<RefusingStore>(), 0, 2));
  dump_as(dumper, 0);
  EXPECT_THAT(names_on("a"), ElementsAre("run"));
  EXPECT_EQ(warnings(log), 0u) << "no name was needed";
}

TEST_F(AttachTest, AWorldOfOneHasNobodyToAgreeWith) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  name_over(World::create(store, 0, 1), "a");
  EXPECT_EQ(store->getNumKeys(), 0);
}

TEST_F(AttachTest, AfterTheFirstRecordTheNameInUseIsProposed) {
  const std::vector<World> worlds = World::for_threads(2);
  Dumper late(node("a"));
  dump_as(late, 0);
  const test::LogCapture log;
  late.attach(worlds.at(0));
  EXPECT_EQ(name_over(worlds.at(1), "b"), name_on("a"));
  EXPECT_EQ(warnings(log), 0u);
}

TEST_F(AttachTest, AfterTheFirstRecordAnotherNameIsSaid) {
  const std::vector<World> worlds = World::for_threads(2);
  const std::string name = name_over(worlds.at(1), "b");
  Dumper late(node("a"));
  dump_as(late, 0);
  const test::LogCapture log;
  late.attach(worlds.at(0));
  dump_as(late, 0);
  ASSERT_EQ(warnings(log), 1u);
  EXPECT_THAT(log.lines().front().text,
              AllOf(HasSubstr("after the first record"), HasSubstr(name), HasSubstr(name_on("a"))));
  EXPECT_NE(name_on("a"), name);
}

TEST_F(AttachTest, AStoreThatFailsCostsOneWarningAndNoRecord) {
  const test::LogCapture log;
  Dumper dumper(node("a"));
  dumper.attach(World::create(c10::make_intrusive<RefusingStore>(), 1, 2));
  EXPECT_EQ(warnings(log), 0u) << "whether a name is needed is not known yet";
  for (int i = 0; i < 3; ++i) dump_as(dumper, 1);
  EXPECT_EQ(dumper.state().counters.written, 3u);
  EXPECT_THAT(name_on("a"), testing::StartsWith("dump_"));
  EXPECT_EQ(warnings(log), 1u);
  EXPECT_THAT(log.lines().front().text, AllOf(HasSubstr("the door is shut"), HasSubstr("rank 1 of 2"),
                                              HasSubstr("Set DUMPER_EXP_NAME on all nodes"), HasSubstr(node("a").dir)));
}

TEST_F(AttachTest, AttachingAgainAsksAgain) {
  const std::vector<World> worlds = World::for_threads(2);
  const World shut = World::create(c10::make_intrusive<RefusingStore>(), 0, 2);
  const test::LogCapture log;
  Dumper dumper(node("a"));
  dumper.attach(shut);
  dumper.attach(worlds.at(0));
  dumper.attach(shut);
  dump_as(dumper, 0);
  EXPECT_EQ(name_on("a"), name_over(worlds.at(1), "b"));
  EXPECT_EQ(warnings(log), 0u);
}

// A rank that could not ask the store finds the name on its own node.
TEST_F(AttachTest, ANeighbourTellsTheName) {
  const std::vector<World> worlds = World::for_threads(2);
  const std::string name = name_over(worlds.at(0), "a");
  Dumper dumper(node("a"));
  dumper.attach(World::create(c10::make_intrusive<RefusingStore>(), 1, 2));
  dump_as(dumper, 1);
  EXPECT_THAT(names_on("a"), ElementsAre(name));
}

// The neighbour could not ask the store, and came first.
TEST_F(AttachTest, ANeighboursOwnNameIsNotTheLaunchs) {
  const std::vector<World> worlds = World::for_threads(2);
  const std::string name = name_over(worlds.at(0), "far");
  Dumper alone(node("a"));
  alone.attach(World::create(c10::make_intrusive<RefusingStore>(), 1, 2));
  dump_as(alone, 1);
  const std::string own = name_on("a");
  ASSERT_NE(own, name);
  Dumper dumper(node("a"));
  dumper.attach(worlds.at(1));
  dump_as(dumper, 0);
  EXPECT_THAT(names_on("a"), testing::UnorderedElementsAre(own, name));
}

// As torchrun starts them: the agent serves the store, and each node has a disk of its own.
DBG_RANK_BODY(dump_on_a_node_of_its_own) {
  ::setenv("DUMPER_DIR", formatted("{}{}", context.argument, context.rank).c_str(), 1);
  const World world = World::from_env();
  dbg::attach(world);
  dbg::dump("x", at::ones({1}));
}

TEST_F(AttachTest, ProcessesOnTwoNodesShareOneNameAndEachLaunchHasItsOwn) {
  const World agent = World::over_tcp({"127.0.0.1", 0, true}, 0, 1);
  test::RankSpawn spawn{.body = "dump_on_a_node_of_its_own", .world_size = 2, .argument = folder_ / "node"};
  for (const ConfigKnob& knob : config_knobs()) spawn.environment[knob.variable] = std::nullopt;
  spawn.environment["DUMPER_ENABLE"] = "1";
  spawn.environment["LOCAL_WORLD_SIZE"] = "1";
  spawn.environment["MASTER_ADDR"] = "127.0.0.1";
  spawn.environment["MASTER_PORT"] = std::to_string(agent.store_port());
  spawn.environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  spawn.environment["TORCHELASTIC_RUN_ID"] = "job";
  for (const char* attempt : {"0", "1"}) {
    spawn.environment["TORCHELASTIC_RESTART_COUNT"] = attempt;
    const auto results = test::spawn_ranks(spawn);
    test::expect_all_passed(results);
    for (const auto& result : results) EXPECT_THAT(result.output, Not(HasSubstr("DUMPER_EXP_NAME")));
  }
  EXPECT_THAT(names_on("node0"), SizeIs(2));
  EXPECT_EQ(names_on("node0"), names_on("node1"));
}

}  // namespace
}  // namespace dbg
