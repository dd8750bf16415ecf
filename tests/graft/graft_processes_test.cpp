// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Both sides as processes, wired from the environment: graft by graft, and with a peer that dies on the way.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/log.h"
#include "dbg/runtime.h"
#include "graft/sides.h"
#include "support/forked_child.h"
#include "support/rank_processes.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void say(const std::string& text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(ignored);
}

at::Tensor filled(double value) {
  return at::full({4}, value, at::kFloat);
}

// A rank process is rank R of all; the first `baseline` are that side. Argument: "<port> <baseline> <what else>".
struct Place {
  bool is_baseline = false;
  int rank = 0;
  int size = 0;
};

Place take_place(const test::RankContext& context, const std::map<std::string, std::string>& knobs = {}) {
  std::istringstream words(context.argument);
  int port = 0;
  int baseline = 0;
  words >> port >> baseline;
  const int target = context.world_size - baseline;
  Place place;
  place.is_baseline = context.rank < baseline;
  place.rank = place.is_baseline ? context.rank : context.rank - baseline;
  place.size = place.is_baseline ? baseline : target;
  const auto set = [](const std::string& name, const std::string& value) { ::setenv(name.c_str(), value.c_str(), 1); };
  set("RANK", std::to_string(place.rank));
  set("WORLD_SIZE", std::to_string(place.size));
  set("LOCAL_RANK", std::to_string(place.rank));
  set("DUMPER_ENABLE", "1");
  set("DUMPER_ENABLE_OUTPUT_FILE", "0");
  set("DUMPER_ENABLE_OUTPUT_CONSOLE", "0");
  set("DUMPER_GRAFTER_ENABLE", "1");
  set("DUMPER_GRAFTER_ROLE", place.is_baseline ? "baseline" : "target");
  set("DUMPER_GRAFTER_B2T_FILTER", "name.startswith('x')");
  set("DUMPER_GRAFTER_T2B_FILTER", "name.startswith('y')");
  set("DUMPER_GRAFTER_MASTER_ADDRESS", "127.0.0.1");
  set("DUMPER_GRAFTER_MASTER_PORT", std::to_string(port));
  set("DUMPER_GRAFTER_BASELINE_WORLD_SIZE", std::to_string(baseline));
  set("DUMPER_GRAFTER_TARGET_WORLD_SIZE", std::to_string(target));
  set("DUMPER_GRAFTER_TIMEOUT", "30");
  for (const auto& [name, value] : knobs) set(name, value);
  return place;
}

test::RankSpawn sides_of(const std::string& body, int baseline, int target) {
  test::RankSpawn spawn;
  spawn.body = body;
  spawn.world_size = baseline + target;
  spawn.argument = formatted("{} {}", test::free_port(), baseline);
  spawn.limit = std::chrono::seconds(90);
  return spawn;
}

DBG_RANK_BODY(graft_both_ways) {
  register_graft_transform("mean_of_mine", [](const GraftInput& input) {
    const auto senders = static_cast<int>(input.received.size());
    if (senders >= input.receiver_count) {
      const int each = senders / input.receiver_count;
      at::Tensor sum = at::zeros_like(input.target);
      for (int i = 0; i < each; ++i) sum += input.received.at(static_cast<std::size_t>(each * input.receiver_rank + i));
      return at::Tensor(sum / each);
    }
    return input.received.at(static_cast<std::size_t>(input.receiver_rank * senders / input.receiver_count));
  });
  const Place place = take_place(context, {{"DUMPER_GRAFTER_TRANSFORM", "mean_of_mine"}});
  for (int step = 0; step < 3; ++step) {
    const at::Tensor forth = filled(place.is_baseline ? 10.0 * place.rank + step : -1);
    dbg::dump("x", forth);
    const at::Tensor back = filled(place.is_baseline ? -1 : 100.0 * place.rank + step);
    dbg::dump("y", back);
    if (!place.is_baseline) EXPECT_TRUE(at::equal(forth, filled(place.rank == 0 ? 5 + step : 25 + step))) << forth;
    if (place.is_baseline) EXPECT_TRUE(at::equal(back, filled(100.0 * (place.rank / 2) + step))) << back;
    dbg::step();
  }
  const GraftState state = grafter_of(Dumper::global())->state();
  EXPECT_EQ(state.counters.grafted, 3u);
  EXPECT_EQ(state.counters.sent, 3u);
  EXPECT_EQ(state.peers, "dbg");
  // Fact 9: what tools see, read back from the group that torch's registry knows.
  EXPECT_EQ(state.label, "graft:cpu");
  const auto group = c10d::resolve_process_group("graft");
  EXPECT_EQ(group->getGroupDesc(), "graft:cpu");
  EXPECT_EQ(group->getBackend(c10::DeviceType::CPU)->getGroupDesc(), "graft:cpu");
}

TEST(GraftProcessesTest, Facts9And14FourToTwoAndTwoToFourFromTheEnvironment) {
  test::expect_all_passed(test::spawn_ranks(sides_of("graft_both_ways", 4, 2)));
}

// Argument: as the others', then a second port.
DBG_RANK_BODY(graft_without_a_transform_and_then_with_one) {
  const Place place = take_place(context);
  const std::string second_port = context.argument.substr(context.argument.rfind(' ') + 1);
  for (const char* name : {"x", "y"}) {
    const bool sends = place.is_baseline == (name[0] == 'x');
    const at::Tensor tensor = filled(place.is_baseline ? 1 : 2);
    dbg::dump(name, tensor);
    EXPECT_TRUE(at::equal(tensor, filled(place.is_baseline ? 1 : 2)));
    const GraftCounters counters = grafter_of(Dumper::global())->state().counters;
    EXPECT_EQ(sends ? counters.sent : counters.failed, 1u);
  }
  EXPECT_EQ(grafter_of(Dumper::global())->state().phase, GraftPhase::grafting);
  Dumper::global().configure({"grafter_transform=select:0", "grafter_master_port=" + second_port});
  const at::Tensor tensor = filled(place.is_baseline ? 3 + place.rank : 4);
  dbg::dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, filled(3 + (place.is_baseline ? place.rank : 0)))) << tensor;
}

TEST(GraftProcessesTest, Fact4UnequalCountsFailWithoutATransformAndTheNextGraftHasOne) {
  test::RankSpawn spawn = sides_of("graft_without_a_transform_and_then_with_one", 2, 1);
  spawn.argument += formatted(" {}", test::free_port());
  const auto results = test::spawn_ranks(spawn);
  test::expect_all_passed(results);
  using testing::HasSubstr;
  EXPECT_THAT(results[2].output, HasSubstr("there are 2 senders and 1 receivers; register a transform"));
  for (const int receiver : {0, 1}) {
    EXPECT_THAT(results[static_cast<std::size_t>(receiver)].output,
                HasSubstr("there are 1 senders and 2 receivers; register a transform"));
  }
}

constexpr milliseconds kDeathTimeout = std::chrono::seconds(4);

DBG_RANK_BODY(graft_until_a_peer_dies) {
  const Place place = take_place(context, {{"DUMPER_GRAFTER_TIMEOUT", "4"}, {"DUMPER_GRAFTER_TRANSFORM", "select:0"}});
  auto worst = steady_clock::duration::zero();
  say("begins\n");
  for (int call = 0; call < 100000; ++call) {
    const at::Tensor tensor = at::full({1 << 16}, place.is_baseline ? 1.0 : 2.0, at::kFloat);
    const auto began = steady_clock::now();
    dbg::dump("x", tensor);
    worst = std::max(worst, steady_clock::now() - began);
    const GraftState state = grafter_of(Dumper::global())->state();
    if (call == 0) say("first graft is over\n");
    if (state.phase == GraftPhase::off) {
      if (!place.is_baseline) {
        const float first = tensor[0].item<float>();
        EXPECT_TRUE(at::equal(tensor, at::full({1 << 16}, first, at::kFloat))) << "half written";
      }
      EXPECT_EQ(state.counters.off, 1u);
      EXPECT_FALSE(state.cause.empty());
      break;
    }
    dbg::step();
  }
  EXPECT_EQ(grafter_of(Dumper::global())->state().phase, GraftPhase::off);
  EXPECT_LT(worst, kDeathTimeout + milliseconds(2500));
  dbg::dump("x", filled(1));  // and the run goes on
  say("goes on\n");
}

// Kills one rank of `baseline` and one target so long after it printed `marker`; the others must go on, and say so
// once.
void expect_survivors(int baseline, int victim, const std::string& marker, milliseconds offset) {
  test::RankProcesses ranks(sides_of("graft_until_a_peer_dies", baseline, 1));
  ranks.wait_for_output(victim, marker);
  std::this_thread::sleep_for(offset);  // where the kill strikes is what is to vary
  ranks.kill(victim);
  for (const test::RankResult& result : ranks.wait()) {
    if (result.rank == victim) continue;
    EXPECT_EQ(result.exit_code, 0);
    const std::size_t line = result.output.find("GRAFTING IS OFF");
    EXPECT_NE(line, std::string::npos);
    EXPECT_EQ(result.output.find("GRAFTING IS OFF", line + 1), std::string::npos) << "said twice";
  }
}

// The same with one that is stopped: its sockets stay, and nothing ever answers. Of the store's host that is the worst.
void expect_survivors_of_silence(int baseline, int victim, const std::string& marker) {
  test::RankProcesses ranks(sides_of("graft_until_a_peer_dies", baseline, 1));
  ranks.wait_for_output(victim, marker);
  ranks.stop(victim);
  for (int rank = 0; rank < baseline + 1; ++rank) {
    if (rank != victim) ranks.wait_for_output(rank, "goes on");
  }
  ranks.kill(victim);
  for (const test::RankResult& result : ranks.wait()) {
    if (result.rank != victim) EXPECT_EQ(result.exit_code, 0);
  }
}

// Eight, or as many as the environment asks for: a place that only one in fifty hits is worth a longer look by hand.
int kills_asked_for() {
  const char* const asked = std::getenv("DBG_TEST_GRAFT_KILLS");
  return asked != nullptr ? std::atoi(asked) : 8;
}

TEST(GraftProcessesTest, Fact11AKilledPeerLeavesTheSurvivorsRunning) {
  constexpr unsigned kSeed = 1;
  std::mt19937 random(kSeed);
  for (int kill = 0; kill < kills_asked_for(); ++kill) {
    const int baseline = 1 + static_cast<int>(random() % 2);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(baseline + 1));
    const milliseconds offset(random() % 100);
    SCOPED_TRACE(formatted("kill {} of seed {}: rank {} of {}+1, {} ms into grafting", kill, kSeed, victim, baseline,
                           offset.count()));
    expect_survivors(baseline, victim, "first graft is over", offset);
  }
}

TEST(GraftProcessesTest, Fact11APeerKilledWhileTheSidesMeetLeavesTheSurvivorRunning) {
  for (const int victim : {0, 1}) {
    SCOPED_TRACE(victim == 0 ? "the one that serves the store" : "the other");
    expect_survivors(1, victim, "begins", milliseconds(10));
  }
}

TEST(GraftProcessesTest, Fact11ASilentPeerLeavesTheSurvivorsRunning) {
  for (const std::string marker : {"first graft is over", "begins"}) {
    for (const int victim : {0, 1}) {
      SCOPED_TRACE(formatted("rank {}, stopped at '{}'", victim, marker));
      expect_survivors_of_silence(1, victim, marker);
    }
  }
}

bool appears(const std::string& path, std::chrono::seconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (!std::filesystem::exists(path)) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

// Argument: as the others', then a file that appears when the target may go on.
DBG_RANK_BODY(graft_destroyed_in_a_forked_child) {
  const Place place = take_place(context);
  const std::string go_on = context.argument.substr(context.argument.rfind(' ') + 1);
  auto grafter = std::make_unique<Grafter>(GraftConfig::from(DumperConfig::from_env()));
  const Tags tags{{"name", "x"}};
  const auto graft = [&](std::int64_t step) {
    const at::Tensor tensor = filled(place.is_baseline ? 1 : 2);
    const c10::IValue value(tensor);
    grafter->intercept({tags, value, nullptr, step});
    return at::equal(tensor, filled(1));
  };
  EXPECT_TRUE(graft(0));
  if (!place.is_baseline) {
    EXPECT_FALSE(graft(1));  // the baseline is ahead, and waits inside its call
    EXPECT_TRUE(appears(go_on, std::chrono::seconds(20)));
    EXPECT_TRUE(graft(2));
    return;
  }
  std::promise<void> is_inside;
  auto inside = is_inside.get_future();
  std::atomic<bool> has_said{false};
  set_log_handler([&](LogLevel, std::string_view line) {
    if (line.find("waiting for the ranks of an earlier step") == std::string_view::npos) return;
    if (!has_said.exchange(true)) is_inside.set_value();
  });
  const auto self = current_participant();
  std::thread waiting([&] {
    const ParticipantScope bound(self);
    EXPECT_TRUE(graft(2));
  });
  EXPECT_EQ(inside.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const test::ForkedChild child = test::run_forked(
      [&] {
        grafter.reset();
        return 0;
      },
      std::chrono::seconds(4));
  EXPECT_FALSE(child.hung) << child.output;
  EXPECT_EQ(child.exit_code, 0) << child.output;
  std::ofstream(go_on) << "go on";
  waiting.join();
  set_log_handler(nullptr);
  EXPECT_EQ(grafter->state().counters.sent, 2u);
}

TEST(GraftProcessesTest, AForkedChildMayDestroyAGrafterThatIsInUse) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "a forked child that locks is killed under ThreadSanitizer";
  const test::TempFolder folder;
  test::RankSpawn spawn = sides_of("graft_destroyed_in_a_forked_child", 1, 1);
  spawn.argument += formatted(" {}", (folder / "go-on").string());
  test::expect_all_passed(test::spawn_ranks(spawn));
}

TEST(GraftProcessesTest, TransformsAreAtHandInAChildThatIsForkedWhileTheyAreRegistered) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "a forked child that locks is killed under ThreadSanitizer";
  const auto use = [](const std::string& name) {
    register_graft_transform(name, [](const GraftInput& input) { return input.target; }).remove();
  };
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) use("of_the_parent");
  });
  for (int fork = 0; fork < 100; ++fork) {
    const test::ForkedChild child = test::run_forked(
        [&] {
          use("of_the_child");
          return 0;
        },
        std::chrono::seconds(5));
    EXPECT_FALSE(child.hung) << "fork " << fork;
    if (child.hung) break;
  }
  is_over = true;
  other.join();
}

DBG_RANK_BODY(graft_in_a_forked_child) {
  take_place(context);
  const at::Tensor tensor = filled(context.rank == 0 ? 1 : 2);
  dbg::dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, filled(1)));
  const pid_t child = ::fork();
  if (child == 0) {
    const at::Tensor own = at::Tensor(tensor);
    dbg::dump("x", own);  // must neither wait nor touch the parent's group
    ::_exit(grafter_of(Dumper::global())->state().phase == GraftPhase::off ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const at::Tensor again = filled(context.rank == 0 ? 3 : 4);
  dbg::dump("x", again);
  EXPECT_TRUE(at::equal(again, filled(3)));
}

TEST(GraftProcessesTest, AForkedChildDoesNotGraft) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "a forked child that locks is killed under ThreadSanitizer";
  test::expect_all_passed(test::spawn_ranks(sides_of("graft_in_a_forked_child", 1, 1)));
}

DBG_RANK_BODY(graft_switched_on_late) {
  const Place place = take_place(context, {{"DUMPER_GRAFTER_ENABLE", "0"}});
  const at::Tensor before = filled(place.is_baseline ? 1 : 2);
  dbg::dump("x", before);
  EXPECT_TRUE(at::equal(before, filled(place.is_baseline ? 1 : 2)));
  Dumper::global().configure({"grafter_enable=1"});
  const at::Tensor during = filled(place.is_baseline ? 3 : 4);
  dbg::dump("x", during);
  EXPECT_TRUE(at::equal(during, filled(3)));
  Dumper::global().configure({"grafter_enable=0"});
  const at::Tensor after = filled(place.is_baseline ? 5 : 6);
  dbg::dump("x", after);
  EXPECT_TRUE(at::equal(after, filled(place.is_baseline ? 5 : 6)));
}

TEST(GraftProcessesTest, ConfigureSwitchesGraftingOnWhileBothRun) {
  test::expect_all_passed(test::spawn_ranks(sides_of("graft_switched_on_late", 1, 1)));
}

// Argument: a folder of records. The global Dumper is never destroyed.
DBG_RANK_BODY(graft_from_a_folder_until_the_end) {
  const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
  set("DUMPER_ENABLE", "1");
  set("DUMPER_ENABLE_OUTPUT_FILE", "0");
  set("DUMPER_GRAFTER_ENABLE", "1");
  set("DUMPER_GRAFTER_ROLE", "file");
  set("DUMPER_GRAFTER_FOLDER", context.argument);
  set("DUMPER_GRAFTER_B2T_FILTER", "name == 'x'");
  const at::Tensor tensor = filled(2);
  dbg::dump("x", tensor);
  EXPECT_TRUE(at::equal(tensor, filled(1)));
}

TEST(GraftProcessesTest, RecordsThatNobodyAskedForAreReportedWhenTheProgramEnds) {
  const test::TempFolder folder;
  DumperConfig config = test::silent_dumper();
  config.enable_output_file = true;
  config.dir = folder.path().string();
  config.exp_name = "exp";
  Dumper dumper(config);
  dumper.dump("x", filled(1));
  dumper.dump("other", filled(1));
  test::RankSpawn spawn;
  spawn.body = "graft_from_a_folder_until_the_end";
  spawn.argument = folder.path().string();
  const auto results = test::spawn_ranks(spawn);
  test::expect_all_passed(results);
  EXPECT_THAT(results[0].output, testing::HasSubstr("1 of the 2 records of"));
}

}  // namespace
}  // namespace dbg
