// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Both sides as processes, wired from the environment: graft by graft, forked, switched on late, from a folder.
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
#include "graft/graft_facts.h"
#include "graft/side_processes.h"
#include "support/forked_child.h"
#include "support/rank_processes.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::filled;
using test::Place;
using test::sides_of;
using test::take_place;

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
    if (!place.is_baseline) {
      EXPECT_TRUE(at::equal(forth, filled(place.rank == 0 ? 5 + step : 25 + step))) << forth;
    }
    if (place.is_baseline) {
      EXPECT_TRUE(at::equal(back, filled(100.0 * (place.rank / 2) + step))) << back;
    }
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

// Argument: ports, one a fact and wire.
DBG_RANK_BODY(graft_facts_one_after_the_other) {
  struct Side {
    explicit Side(GraftConfig config) : dumper(test::silent_dumper()), grafter(std::move(config)) {
      dumper.set_interceptor(grafter.interceptor());
    }
    Dumper dumper;
    Grafter grafter;
  };
  const test::FactTransforms transforms;
  std::vector<std::unique_ptr<Side>> kept;  // the store of a fact that others are still at is served by one of them
  std::istringstream ports(context.argument);
  for (const bool is_plain : {false, true}) {
    for (const test::GraftFact& fact : test::graft_facts()) {
      if (is_plain && !fact.is_of_both_wires) continue;
      SCOPED_TRACE(formatted("{}, {} wire", fact.name, is_plain ? "Python's" : "dbg's"));
      GraftConfig config = test::config_of(fact, is_plain);
      ports >> config.master_port;
      // The last process is the target, for every fact.
      const bool is_baseline = context.rank + 1 < context.world_size;
      if (is_baseline && context.rank >= fact.baseline) continue;
      config.role = is_baseline ? GraftRole::baseline : GraftRole::target;
      Side& side = *kept.emplace_back(std::make_unique<Side>(std::move(config)));
      const int rank = is_baseline ? context.rank : 0;
      test::SideRank self{is_baseline, rank, side.dumper, side.grafter};
      const ParticipantScope bound(
          std::make_shared<const Participant>(rank, is_baseline ? fact.baseline : fact.target));
      fact.body(self);
    }
  }
}

TEST(GraftProcessesTest, Fact14WhatHoldsOfThreadsHoldsOfProcesses) {
  test::RankSpawn spawn;
  spawn.body = "graft_facts_one_after_the_other";
  for (const test::GraftFact& fact : test::graft_facts()) {
    ASSERT_EQ(fact.target, 1) << fact.name;
    spawn.world_size = std::max(spawn.world_size, fact.baseline + fact.target);
    for (int wire = 0; wire < 2; ++wire) spawn.argument += formatted("{} ", test::free_port());
  }
  test::expect_all_passed(test::spawn_ranks(spawn));
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
  for (int fork = 0; fork < 30; ++fork) {
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

// As whoever keeps to the Python twin's default.
DBG_RANK_BODY(graft_told_nccl) {
  const Place place = take_place(context, {{"DUMPER_GRAFTER_BACKEND", "nccl"}});
  for (int i = 0; i < 2; ++i) {
    const at::Tensor tensor = filled(place.is_baseline ? 1 : 2);
    dbg::dump("x", tensor);
    EXPECT_TRUE(at::equal(tensor, filled(place.is_baseline ? 1 : 2)));
  }
  EXPECT_EQ(grafter_of(Dumper::global()), nullptr);
}

TEST(GraftProcessesTest, TheBackendThatIsNotThereIsSaidOnceAndTheRunGoesOn) {
  const auto results = test::spawn_ranks(sides_of("graft_told_nccl", 1, 1));
  test::expect_all_passed(results);
  for (const test::RankResult& result : results) {
    const std::size_t line = result.output.find("GRAFTING IS OFF: ");
    ASSERT_NE(line, std::string::npos) << result.output;
    EXPECT_THAT(result.output.substr(line), testing::HasSubstr("set DUMPER_GRAFTER_BACKEND=gloo on both sides"));
    EXPECT_EQ(result.output.find("GRAFTING IS", line + 1), std::string::npos) << result.output;
  }
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
