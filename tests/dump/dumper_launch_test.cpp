// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: one folder a launch, whoever dumps first and whoever started them; names never collide.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ratio>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/formatted.h"
#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "dump/exp_name.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/rank_threads.h"
#include "support/record_files.h"
#include "support/temp_folder.h"
#include "support/torch_archive.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using test::RankProcesses;
using test::RankResult;
using test::RankSpawn;
using test::spawn_ranks;
using testing::AllOf;
using testing::ElementsAre;
using testing::SizeIs;

using Environment = std::map<std::string, std::optional<std::string>>;

void say(const std::string& text) {
  ASSERT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

at::Tensor value_of(int rank, int step) {
  return at::arange(6, at::kFloat) + 100 * rank + step;
}

// --- What the ranks do; the Dumper is configured by the environment, as users do it. ---

DBG_RANK_BODY(dump_two_steps) {
  Dumper dumper(DumperConfig::from_env());
  for (int step = 0; step < 2; ++step) {
    dumper.dump("x", value_of(context.rank, step), {{"layer_id", step}});
    dumper.step();
  }
  EXPECT_EQ(dumper.state().counters.written, 2u);
}

// Only the rank that the argument names dumps.
DBG_RANK_BODY(one_rank_dumps) {
  Dumper dumper(DumperConfig::from_env());
  if (std::to_string(context.rank) == context.argument) dumper.dump("x", value_of(context.rank, 0));
}

// The rank that the argument names dumps and ends; the others dump when the pipe beside the folder is opened.
DBG_RANK_BODY(others_dump_later) {
  Dumper dumper(DumperConfig::from_env());
  if (std::to_string(context.rank) != context.argument) {
    say("waiting\n");
    const std::string gate = dumper.state().config.dir + ".gate";
    const int opened = ::open(gate.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(opened, 0);
    ::close(opened);
  }
  dumper.dump("x", value_of(context.rank, 0));
  say("dumped\n");
}

// An engine that runs all its ranks as threads of one process; the one that the argument names dumps.
DBG_RANK_BODY(one_thread_of_four_dumps) {
  Dumper dumper(DumperConfig::from_env());
  test::run_ranks_as_threads(4, [&](int rank) {
    if (std::to_string(rank) == context.argument) dumper.dump("x", value_of(rank, 0));
  });
}

// A launcher: starts two ranks of its own.
DBG_RANK_BODY(launch_two_ranks) {
  test::expect_all_passed(spawn_ranks({.body = "dump_two_steps", .world_size = 2}));
}

DBG_RANK_BODY(dump_many_of_one_name) {
  Dumper dumper(DumperConfig::from_env());
  for (int i = 0; i < 200; ++i) dumper.dump("x", value_of(context.rank, i));
  EXPECT_EQ(dumper.state().counters.written, 200u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

// Each process is rank 0 of a launch of its own, and nothing tells the launches apart. They claim at the same moments.
DBG_RANK_BODY(claim_as_rank_0) {
  using Slot = std::chrono::duration<std::int64_t, std::ratio<1, 50>>;
  using std::chrono::steady_clock;  // one for all processes
  std::string names;
  for (int round = 0; round < 40; ++round) {
    const auto slot = std::chrono::ceil<Slot>(steady_clock::now().time_since_epoch());
    while (steady_clock::now().time_since_epoch() < slot) std::this_thread::yield();
    FileExpNameBoard board(context.argument, formatted("launch{}", slot.count()), 0);
    names += board.claim(formatted("dump_{}", slot.count())).exp_name + " ";
  }
  say(formatted("names: {}\n", names));
}

DBG_RANK_BODY(count_warnings_of_nodes) {
  const test::LogCapture log;
  Dumper dumper(DumperConfig::from_env());
  for (int i = 0; i < 5; ++i) dumper.dump("x", value_of(context.rank, i));
  say(formatted("warnings={} advice={} written={}\n", log.count("several nodes"),
                log.count("Set DUMPER_EXP_NAME on all nodes"), dumper.state().counters.written));
}

// --- How launches are set up ---

struct Launcher {
  std::string name;
  Environment environment;
};

void PrintTo(const Launcher& launcher, std::ostream* out) {
  *out << launcher.name;
}

const Launcher kTorchrun = {"Torchrun",
                            {{"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"}}};
const Launcher kParentOnly = {"ParentOnly",
                              {{"TORCHELASTIC_RUN_ID", std::nullopt},
                               {"TORCHELASTIC_RESTART_COUNT", std::nullopt},
                               {"MASTER_ADDR", std::nullopt},
                               {"MASTER_PORT", std::nullopt}}};

class DumperLaunchTest : public testing::TestWithParam<Launcher> {
 protected:
  fs::path dir() const { return folder_ / "base"; }
  std::vector<std::string> experiments() const { return test::experiments_in(dir()); }

  RankSpawn launch(const std::string& body, int world_size, const std::string& argument = {},
                   const Environment& changes = {}) const {
    RankSpawn spawn{
        .body = body, .world_size = world_size, .argument = argument, .environment = GetParam().environment};
    for (const char* name : {"LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "SLURM_NNODES", "DUMPER_EXP_NAME"}) {
      spawn.environment[name] = std::nullopt;
    }
    spawn.environment["DUMPER_ENABLE"] = "1";
    spawn.environment["DUMPER_DIR"] = dir().string();
    for (const auto& [name, value] : changes) spawn.environment[name] = value;
    return spawn;
  }

  test::TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Launchers, DumperLaunchTest, testing::Values(kTorchrun, kParentOnly),
                         [](const auto& launcher) { return launcher.param.name; });

TEST_P(DumperLaunchTest, RanksShareOneFolderAndRecordTheirOwn) {
  test::expect_all_passed(spawn_ranks(launch("dump_two_steps", 2)));
  ASSERT_THAT(experiments(), SizeIs(1));
  const fs::path folder = dir() / experiments().front();
  EXPECT_THAT(test::tags_in(folder, "step"), ElementsAre("0", "0", "1", "1"));
  EXPECT_THAT(test::tags_in(folder, "rank"), ElementsAre("0", "1", "0", "1"));
  EXPECT_THAT(test::tags_in(folder, "dump_index"), ElementsAre("1", "1", "2", "2"));
  EXPECT_THAT(test::tags_in(folder, "layer_id"), ElementsAre("0", "0", "1", "1"));
  for (const std::string& path : list_records(folder.string())) {
    const at::Tensor value = value_of(std::stoi(test::tag_of(path, "rank")), std::stoi(test::tag_of(path, "step")));
    EXPECT_EQ(test::first_tensor_bytes(path), test::tensor_bytes(value)) << path;
    test::expect_meta_of_rank(path, 2);
  }
}

TEST_P(DumperLaunchTest, OneRankMayDumpLongBeforeTheOthersAndEnd) {
  fs::create_directories(dir());
  ASSERT_EQ(::mkfifo((dir().string() + ".gate").c_str(), 0600), 0);
  RankProcesses ranks(launch("others_dump_later", 4, "3"));
  for (int rank = 0; rank < 3; ++rank) ranks.wait_for_output(rank, "waiting");
  ranks.wait_for_output(3, "dumped");  // nobody else has dumped, and nobody was waited for
  ASSERT_THAT(experiments(), SizeIs(1));
  // Held open until all are through: a rank that comes later finds the gate open.
  const int gate = ::open((dir().string() + ".gate").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(gate, 0);
  test::expect_all_passed(ranks.wait());
  ::close(gate);
  ASSERT_THAT(experiments(), SizeIs(1));
  EXPECT_THAT(test::tags_in(dir() / experiments().front(), "rank"), ElementsAre("0", "1", "2", "3"));
}

TEST_P(DumperLaunchTest, LaunchesOneAfterTheOtherHaveAFolderEach) {
  for (int i = 0; i < 3; ++i) test::expect_all_passed(spawn_ranks(launch("dump_two_steps", 2)));
  ASSERT_THAT(experiments(), SizeIs(3));
  for (const std::string& name : experiments()) {
    EXPECT_THAT(test::tags_in(dir() / name, "rank"), ElementsAre("0", "1", "0", "1")) << name;
  }
}

// The second launch's first dumper has a place that nobody took in the first.
TEST_P(DumperLaunchTest, LaunchesInWhichDifferentRanksDumpHaveAFolderEach) {
  for (const char* rank : {"0", "1", "1"}) test::expect_all_passed(spawn_ranks(launch("one_rank_dumps", 2, rank)));
  EXPECT_THAT(experiments(), SizeIs(3));
  for (const std::string& name : experiments()) EXPECT_THAT(list_records((dir() / name).string()), SizeIs(1));
}

TEST_P(DumperLaunchTest, ProgramsWithThreadsAsRanksHaveAFolderEach) {
  for (const char* rank : {"2", "0", "3", "3"}) {
    test::expect_all_passed(spawn_ranks(
        launch("one_thread_of_four_dumps", 1, rank, {{"RANK", std::nullopt}, {"WORLD_SIZE", std::nullopt}})));
  }
  EXPECT_THAT(experiments(), SizeIs(4));
}

TEST_P(DumperLaunchTest, LaunchesAtTheSameTimeHaveAFolderEach) {
  // Two launchers; what they share with nobody else is their port or run id, or that they are two processes.
  std::vector<std::unique_ptr<RankProcesses>> launchers;
  for (const char* id : {"29501", "29502"}) {
    Environment own;
    if (GetParam().environment.at("MASTER_PORT")) own["MASTER_PORT"] = id;
    launchers.push_back(std::make_unique<RankProcesses>(launch("launch_two_ranks", 1, "", own)));
  }
  for (const auto& launcher : launchers) test::expect_all_passed(launcher->wait());
  ASSERT_THAT(experiments(), SizeIs(2));
  for (const std::string& name : experiments()) {
    EXPECT_THAT(test::tags_in(dir() / name, "rank"), ElementsAre("0", "1", "0", "1")) << name;
  }
}

// Nothing says which rank 0 belongs to which rank 1; but each folder has one of each.
TEST_P(DumperLaunchTest, LaunchesThatNothingTellsApartMixNoTwoOfOneRank) {
  fs::create_directories(dir());
  ASSERT_EQ(::mkfifo((dir().string() + ".gate").c_str(), 0600), 0);
  RankProcesses first(launch("others_dump_later", 2, "nobody"));
  RankProcesses second(launch("others_dump_later", 2, "nobody"));
  for (RankProcesses* ranks : {&first, &second}) {
    for (int rank = 0; rank < 2; ++rank) ranks->wait_for_output(rank, "waiting");
  }
  const int gate = ::open((dir().string() + ".gate").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(gate, 0);
  for (RankProcesses* ranks : {&first, &second}) test::expect_all_passed(ranks->wait());
  ::close(gate);
  ASSERT_THAT(experiments(), SizeIs(2));
  for (const std::string& name : experiments()) {
    EXPECT_THAT(test::tags_in(dir() / name, "rank"), ElementsAre("0", "1")) << name;
  }
}

// What one claims, another may take between that and the claimant's own place in it.
TEST(ExpNameProcessesTest, LaunchesThatClaimAtOnceHaveANameEach) {
  const test::TempFolder folder;
  std::multiset<std::string> names;
  for (const RankResult& result :
       spawn_ranks({.body = "claim_as_rank_0", .world_size = 4, .argument = folder.path().string()})) {
    ASSERT_EQ(result.exit_code, 0) << result.output;
    std::istringstream words(result.output.substr(result.output.find("names: ") + 7));
    for (std::string name; words >> name;) names.insert(name);
  }
  EXPECT_THAT(names, SizeIs(160));
  EXPECT_THAT(std::set<std::string>(names.begin(), names.end()), SizeIs(160));
}

TEST_P(DumperLaunchTest, AGivenNameIsEverybodysAndNeedsNoBoard) {
  test::expect_all_passed(spawn_ranks(launch("dump_two_steps", 2, "", {{"DUMPER_EXP_NAME", "run"}})));
  EXPECT_THAT(test::names_in(dir()), ElementsAre("run"));
  EXPECT_THAT(test::tags_in(dir() / "run", "rank"), ElementsAre("0", "1", "0", "1"));
}

TEST_P(DumperLaunchTest, ALaunchOverSeveralNodesWarnsOnce) {
  for (const auto& result : spawn_ranks(launch("count_warnings_of_nodes", 2, "", {{"LOCAL_WORLD_SIZE", "1"}}))) {
    EXPECT_EQ(result.output, "warnings=1 advice=1 written=5\n");
  }
  for (const auto& result :
       spawn_ranks(launch("count_warnings_of_nodes", 2, "", {{"LOCAL_WORLD_SIZE", "1"}, {"DUMPER_EXP_NAME", "run"}}))) {
    EXPECT_EQ(result.output, "warnings=0 advice=0 written=5\n");
  }
}

class DumperProcessesTest : public testing::Test {
 protected:
  fs::path dir() const { return folder_ / "base"; }
  RankSpawn spawn(const std::string& body, int world_size, Environment environment) const {
    environment["DUMPER_ENABLE"] = "1";
    environment["DUMPER_DIR"] = dir().string();
    environment["DUMPER_ENABLE_OUTPUT_CONSOLE"] = "0";
    return {.body = body, .world_size = world_size, .environment = environment};
  }

  test::TempFolder folder_;
};

// Two jobs that were both told to be rank 0 of `run`: every record of both is there.
TEST_F(DumperProcessesTest, SameRankAndNameNeverOverwrite) {
  const auto results =
      spawn_ranks(spawn("dump_many_of_one_name", 3, {{"DUMPER_EXP_NAME", "run"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  test::expect_all_passed(results);
  const auto indices = test::tags_in(dir() / "run", "dump_index");
  EXPECT_EQ(indices.size(), 600u);
  EXPECT_EQ(std::set<std::string>(indices.begin(), indices.end()).size(), 600u);
  std::set<std::string> distinct;
  for (const std::string& path : list_records((dir() / "run").string())) {
    distinct.insert(test::first_tensor_bytes(path));
  }
  EXPECT_EQ(distinct.size(), 400u) << "0-199, 100-299, 200-399 of three processes";
  EXPECT_EQ(test::names_in(dir() / "run").size(), 600u) << "no temporary file stays";
}

TEST_F(DumperProcessesTest, ABaseThatCantBeWrittenCostsWarningsAndNotTheRun) {
  test::write_text(dir(), "a file");
  for (const auto& result : spawn_ranks(spawn("one_rank_dumps", 2, {{"DUMPER_EXP_NAME", std::nullopt}}))) {
    EXPECT_TRUE(result.passed()) << result.output;
  }
  RankSpawn both = spawn("one_rank_dumps", 2, {{"DUMPER_EXP_NAME", std::nullopt}});
  both.argument = "1";
  const auto results = spawn_ranks(both);
  test::expect_all_passed(results);
  EXPECT_THAT(results.at(1).output, AllOf(testing::HasSubstr("goes on with its own exp_name"),
                                          testing::HasSubstr("ENOTDIR"), testing::HasSubstr("DUMPER_EXP_NAME")));
}

}  // namespace
}  // namespace dbg
