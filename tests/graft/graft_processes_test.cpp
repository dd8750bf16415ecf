// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Both sides as processes, wired from the environment: graft by graft, and with a peer that dies on the way.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/runtime.h"
#include "graft/sides.h"
#include "support/rank_processes.h"
#include "support/sanitizers.h"

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
  EXPECT_EQ(state.label, "graft:cpu");
}

TEST(GraftProcessesTest, Fact14FourToTwoAndTwoToFourFromTheEnvironment) {
  test::expect_all_passed(test::spawn_ranks(sides_of("graft_both_ways", 4, 2)));
}

DBG_RANK_BODY(graft_until_the_peer_dies) {
  const Place place = take_place(context, {{"DUMPER_GRAFTER_TIMEOUT", "4"}});
  auto worst = steady_clock::duration::zero();
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
  EXPECT_LT(worst, std::chrono::seconds(4) + milliseconds(2500));
  dbg::dump("x", filled(1));  // and the run goes on
  say("the survivor goes on\n");
}

// `kills` times: one rank of 1+1 is killed at a random moment of its grafting.
void kill_at_random(int kills, unsigned seed) {
  std::mt19937 random(seed);
  for (int kill = 0; kill < kills; ++kill) {
    SCOPED_TRACE(formatted("kill {} of seed {}", kill, seed));
    const int victim = static_cast<int>(random() % 2);
    const milliseconds offset(random() % 100);
    test::RankProcesses ranks(sides_of("graft_until_the_peer_dies", 1, 1));
    ranks.wait_for_output(victim, "first graft is over");
    std::this_thread::sleep_for(offset);  // where in a graft the kill strikes is what is to vary
    ranks.kill(victim);
    const auto& results = ranks.wait();
    EXPECT_EQ(results[static_cast<std::size_t>(1 - victim)].exit_code, 0);
    EXPECT_THAT(results[static_cast<std::size_t>(1 - victim)].output, testing::HasSubstr("GRAFTING IS OFF"));
  }
}

TEST(GraftProcessesTest, Fact11AKilledPeerLeavesTheSurvivorRunning) {
  kill_at_random(3, 1);
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

}  // namespace
}  // namespace dbg
