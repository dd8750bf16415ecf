// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The harness of ranks as processes: what they are told, how they fail, what is kept of them.
#include "support/rank_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/participant.h"
#include "support/waits.h"

namespace dbg::test {
namespace {

using testing::HasSubstr;

void say(const std::string& text) {
  ASSERT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "(unset)";
}

DBG_RANK_BODY(says_who_it_is) {
  say(formatted("{} of {}, {}, {}, {}, {}\n", context.rank, context.world_size, context.argument,
                current_participant()->rank(), variable("DBG_TEST_GIVEN"), variable("DBG_TEST_TAKEN")));
}

TEST(RankProcessesTest, RanksAreToldWhoTheyAre) {
  ::setenv("DBG_TEST_TAKEN", "there", 1);
  const auto results = spawn_ranks({.body = "says_who_it_is",
                                    .world_size = 3,
                                    .argument = "some text",
                                    .environment = {{"DBG_TEST_GIVEN", "value"}, {"DBG_TEST_TAKEN", std::nullopt}}});
  ::unsetenv("DBG_TEST_TAKEN");
  ASSERT_EQ(results.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const RankResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(result.passed());
    EXPECT_EQ(result.rank, rank);
    EXPECT_EQ(result.output, formatted("{} of 3, some text, {}, value, (unset)\n", rank, rank));
  }
}

DBG_RANK_BODY(fails_in_its_own_way) {
  ::write(STDERR_FILENO, "before\n", 7) == 7 ? void() : throw std::runtime_error("stderr");
  if (context.rank == 0) throw std::runtime_error("thrown words");
  if (context.rank == 1) ADD_FAILURE() << "expected words";
  if (context.rank == 2) ::_exit(7);
  if (context.rank == 3) ::raise(SIGKILL);
}

TEST(RankProcessesTest, EachWayToFailIsTold) {
  const auto results = spawn_ranks({.body = "fails_in_its_own_way", .world_size = 5});
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].output, HasSubstr("rank 0 threw: thrown words"));
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_THAT(results[1].output, HasSubstr("expected words"));
  EXPECT_EQ(results[2].exit_code, 7);
  EXPECT_EQ(results[3].signal, SIGKILL);
  EXPECT_FALSE(results[3].exit_code.has_value());
  EXPECT_TRUE(results[4].passed());
  for (const RankResult& result : results) {
    EXPECT_THAT(result.output, HasSubstr("before\n"));
    EXPECT_FALSE(result.timed_out);
  }
  EXPECT_NONFATAL_FAILURE(expect_all_passed({results[2]}), "rank 2 exited with 7");
  EXPECT_NONFATAL_FAILURE(expect_all_passed({results[3]}), "rank 3 was killed by signal 9");
}

TEST(RankProcessesTest, AnUnknownBodyFails) {
  const auto results = spawn_ranks({.body = "no_such_body"});
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].output, HasSubstr("no_such_body"));
}

DBG_RANK_BODY(waits_to_be_killed) {
  say("ready\n");
  if (context.rank == 1) wait_forever_here();
}

TEST(RankProcessesTest, OneRankCanBeKilled) {
  RankProcesses ranks({.body = "waits_to_be_killed", .world_size = 2});
  ranks.wait_for_output(1, "ready");
  ranks.kill(1);
  const auto& results = ranks.wait();
  EXPECT_TRUE(results[0].passed());
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_FALSE(results[1].timed_out);
  ranks.kill(1);  // harmless
}

TEST(RankProcessesTest, WaitingForWordsThatNeverComeEndsWithTheRank) {
  RankProcesses ranks({.body = "waits_to_be_killed", .world_size = 1});
  EXPECT_THROW(ranks.wait_for_output(0, "never said"), Error);
  EXPECT_TRUE(ranks.wait()[0].passed());
}

DBG_RANK_BODY(hangs_in_two_threads) {
  std::thread other([] {
    say("ready\n");
    wait_forever_here();
  });
  other.join();
}

TEST(RankProcessesTest, AHangShowsTheStacksOfAllThreadsAndEnds) {
  RankProcesses ranks({.body = "hangs_in_two_threads", .world_size = 2});
  ranks.wait_for_output(0, "ready");
  ranks.wait_for_output(1, "ready");
  ranks.set_limit(std::chrono::milliseconds(100));
  const auto& results = ranks.wait();
  for (const RankResult& result : results) {
    EXPECT_TRUE(result.timed_out);
    EXPECT_EQ(result.signal, SIGKILL);
    EXPECT_THAT(result.output, HasSubstr(formatted("(rank {})", result.rank)));
    EXPECT_THAT(result.output, HasSubstr("wait_forever_here"));
    EXPECT_THAT(result.output, HasSubstr("hangs_in_two_threads")) << "the main thread's stack is missing";
    EXPECT_NONFATAL_FAILURE(expect_all_passed({result}), "was not done in time");
  }
}

TEST(RankProcessesTest, AStoppedRankShowsItsStackToo) {
  RankProcesses ranks({.body = "waits_to_be_killed", .world_size = 2});
  ranks.wait_for_output(1, "ready");
  ranks.stop(1);
  ranks.set_limit(std::chrono::milliseconds(100));
  const auto& results = ranks.wait();
  EXPECT_TRUE(results[1].timed_out);
  EXPECT_THAT(results[1].output, testing::AnyOf(HasSubstr("wait_forever_here"), HasSubstr("waits_to_be_killed")));
}

TEST(RankProcessesTest, AStoppedRankGoesOnWhenResumed) {
  RankProcesses ranks({.body = "waits_to_be_killed", .world_size = 2});
  ranks.wait_for_output(1, "ready");
  ranks.stop(1);
  ranks.resume(1);
  ranks.kill(1);
  EXPECT_EQ(ranks.wait()[1].signal, SIGKILL);
}

DBG_RANK_BODY(starts_a_rank_of_its_own) {
  RankProcesses inner({.body = "tells_its_process_id"});
  inner.wait_for_output(0, "ready");
  ASSERT_NO_FATAL_FAILURE(say("inner is ready\n"));
  wait_forever_here();
}

DBG_RANK_BODY(tells_its_process_id) {
  std::ofstream(variable("DBG_TEST_PID_FILE")) << ::getpid() << std::flush;
  say("ready\n");
  wait_forever_here();
}

bool is_running(int process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  return text[text.rfind(')') + 2] != 'Z';  // a zombie has ended, even if nobody took it away
}

TEST(RankProcessesTest, RanksEndWithTheTestThatStartedThem) {
  const std::string file = testing::TempDir() + "dbg_rank_pid_" + std::to_string(::getpid());
  RankProcesses ranks({.body = "starts_a_rank_of_its_own", .environment = {{"DBG_TEST_PID_FILE", file}}});
  ranks.wait_for_output(0, "inner is ready");
  int inner = 0;
  std::ifstream(file) >> inner;
  ::unlink(file.c_str());
  ASSERT_GT(inner, 0);
  EXPECT_TRUE(is_running(inner));
  ranks.kill(0);
  ranks.wait();
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (is_running(inner) && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // its end can only be looked for
  }
  EXPECT_FALSE(is_running(inner));
}

}  // namespace
}  // namespace dbg::test
