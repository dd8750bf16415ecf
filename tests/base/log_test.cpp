// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Lines: what they look like, where they go, and that nothing a handler does reaches the caller.
#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/formatted.h"
#include "dbg/participant.h"
#include "support/log_capture.h"
#include "support/rank_processes.h"
#include "support/sanitizers.h"

namespace dbg {
namespace {

using base::log;
using base::log_text;
using test::LogCapture;
using testing::HasSubstr;
using testing::MatchesRegex;

class LogTest : public testing::Test {
 protected:
  void TearDown() override {
    set_log_handler(nullptr);
    set_log_level(LogLevel::info);
  }
};

TEST_F(LogTest, ALineHasPartRankAndTime) {
  const LogCapture capture;
  const ParticipantScope bound(std::make_shared<const Participant>(3, 4));
  log(LogLevel::warning, "Dumper", "{} of {}", 1, "two");
  ASSERT_EQ(capture.lines().size(), 1U);
  EXPECT_EQ(capture.lines()[0].level, LogLevel::warning);
  EXPECT_THAT(capture.lines()[0].text, MatchesRegex("\\[Dumper, rank=3, t=[0-9]+\\.[0-9][0-9][0-9]\\] 1 of two"));
}

TEST_F(LogTest, BracesInATextAreNotAFormat) {
  const LogCapture capture;
  log_text(LogLevel::info, "dbg", "{} {0} {broken");
  EXPECT_EQ(capture.count("{} {0} {broken"), 1U);
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  const LogCapture capture;
  log(LogLevel::debug, "dbg", "too low by default");
  EXPECT_FALSE(base::log_enabled(LogLevel::debug));
  set_log_level(LogLevel::debug);
  log(LogLevel::debug, "dbg", "now high enough");
  set_log_level(LogLevel::error);
  log(LogLevel::warning, "dbg", "now too low");
  EXPECT_EQ(capture.lines().size(), 1U);
  EXPECT_EQ(capture.count("now high enough"), 1U);
}

TEST_F(LogTest, AnEmptyHandlerRestoresTheDefault) {
  std::vector<std::string> seen;
  set_log_handler([&seen](LogLevel, std::string_view line) { seen.emplace_back(line); });
  log(LogLevel::info, "dbg", "first");
  set_log_handler(nullptr);
  testing::internal::CaptureStderr();
  log(LogLevel::info, "dbg", "second");
  const std::string printed = testing::internal::GetCapturedStderr();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_THAT(printed, MatchesRegex("\\[dbg, rank=[0-9]+, t=[0-9.]+\\] second\n"));
}

TEST_F(LogTest, WhatAHandlerThrowsStaysInsideAndTheLineIsNotLost) {
  int calls = 0;
  set_log_handler([&calls](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("from the handler");
  });
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(log(LogLevel::error, "dbg", "a line"));
  EXPECT_NO_THROW(log(LogLevel::error, "dbg", "another line"));
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls, 2) << "a handler that threw once is still the handler";
  EXPECT_THAT(printed, HasSubstr("a line"));
  EXPECT_THAT(printed, HasSubstr("another line"));
}

TEST_F(LogTest, ALineCausedByAHandlerGoesToStderr) {
  int calls = 0;
  set_log_handler([&calls](LogLevel, std::string_view) {
    ++calls;
    log(LogLevel::info, "dbg", "from inside");
  });
  testing::internal::CaptureStderr();
  log(LogLevel::info, "dbg", "from outside");
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(printed, HasSubstr("from inside"));
  EXPECT_THAT(printed, testing::Not(HasSubstr("from outside")));
}

TEST_F(LogTest, AHandlerMayReplaceItself) {
  const auto seen = std::make_shared<std::vector<std::string>>();
  set_log_handler([seen](LogLevel, std::string_view) {
    set_log_handler([seen](LogLevel, std::string_view line) { seen->emplace_back(line); });
    seen->emplace_back("the first handler, still alive");
  });
  log(LogLevel::info, "dbg", "one");
  log(LogLevel::info, "dbg", "two");
  ASSERT_EQ(seen->size(), 2U);
  EXPECT_EQ(seen->at(0), "the first handler, still alive");
  EXPECT_THAT(seen->at(1), HasSubstr("two"));
}

TEST_F(LogTest, HeldLinesComeInTheirOrderOnceTheyMay) {
  const LogCapture capture;
  {
    const base::HeldLines outer;
    log(LogLevel::info, "dbg", "first");
    {
      const base::HeldLines inner;
      log(LogLevel::debug, "dbg", "too low");
      log(LogLevel::warning, "dbg", "second");
    }
    log(LogLevel::info, "dbg", "third");
    std::thread([] { log(LogLevel::info, "dbg", "of another thread"); }).join();
    ASSERT_EQ(capture.lines().size(), 1U);
  }
  const auto lines = capture.lines();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[0].text, HasSubstr("of another thread"));
  EXPECT_THAT(lines[1].text, HasSubstr("first"));
  EXPECT_THAT(lines[2].text, HasSubstr("second"));
  EXPECT_EQ(lines[2].level, LogLevel::warning);
  EXPECT_THAT(lines[3].text, HasSubstr("third"));
}

TEST_F(LogTest, TheCallersErrnoIsKept) {
  set_log_handler([](LogLevel, std::string_view) { errno = EINVAL; });
  errno = ENOSPC;
  log(LogLevel::info, "dbg", "a line");
  EXPECT_EQ(errno, ENOSPC);
}

TEST_F(LogTest, AThreadAboutToBeCancelledStillWritesItsLine) {
  if (test::kUnderAddressSanitizer) GTEST_SKIP() << "AddressSanitizer loses track of a cancelled thread's stack";
  const LogCapture capture;
  std::thread thread([] {
    ::pthread_cancel(::pthread_self());
    log(LogLevel::info, "dbg", "last words");
    ::pthread_testcancel();
  });
  thread.join();
  EXPECT_EQ(capture.count("last words"), 1U);
}

DBG_RANK_BODY(logs_while_about_to_be_cancelled) {
  std::thread thread([] {
    ::pthread_cancel(::pthread_self());
    log(LogLevel::info, "dbg", "last words on stderr");
    base::log_past_handler(LogLevel::info, "dbg", "and these");
    ::pthread_testcancel();
  });
  thread.join();
}

TEST_F(LogTest, SoDoesOneThatWritesToStderr) {
  if (test::kUnderAddressSanitizer) GTEST_SKIP() << "AddressSanitizer loses track of a cancelled thread's stack";
  const auto results = test::spawn_ranks({.body = "logs_while_about_to_be_cancelled"});
  test::expect_all_passed(results);
  EXPECT_THAT(results[0].output, HasSubstr("last words on stderr"));
  EXPECT_THAT(results[0].output, HasSubstr("and these"));
}

bool is_pipe_signal_pending() {
  sigset_t pending;
  ::sigemptyset(&pending);
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGPIPE) == 1;
}

bool is_pipe_signal_blocked() {
  sigset_t blocked;
  return ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 && ::sigismember(&blocked, SIGPIPE) == 1;
}

DBG_RANK_BODY(logs_to_a_reader_that_is_gone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const int own = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  log(LogLevel::info, "dbg", "nobody reads this");
  base::log_past_handler(LogLevel::info, "dbg", "nor this");
  ::dup2(own, STDERR_FILENO);
  EXPECT_FALSE(is_pipe_signal_pending());
  EXPECT_FALSE(is_pipe_signal_blocked());

  // One that the program holds back itself is not dbg's to take.
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  ::pthread_kill(::pthread_self(), SIGPIPE);
  ::dup2(ends[1], STDERR_FILENO);
  log(LogLevel::info, "dbg", "nor this");
  ::dup2(own, STDERR_FILENO);
  EXPECT_TRUE(is_pipe_signal_pending());
  EXPECT_TRUE(is_pipe_signal_blocked());
  log(LogLevel::info, "dbg", "still here");
}

TEST_F(LogTest, AReaderThatIsGoneDoesNotEndTheProgram) {
  const auto results = test::spawn_ranks({.body = "logs_to_a_reader_that_is_gone"});
  test::expect_all_passed(results);
  EXPECT_THAT(results[0].output, HasSubstr("still here"));
}

DBG_RANK_BODY(logs_past_the_handler_first) {
  std::atomic<int> handled{0};
  set_log_handler([&handled](LogLevel, std::string_view) { ++handled; });
  base::log_past_handler(LogLevel::info, "dbg", "past it");
  ASSERT_EQ(handled, 0) << "the complaint about the environment took the handler";
  log(LogLevel::info, "dbg", "through it");
  ASSERT_EQ(handled, 1);
  set_log_handler(nullptr);
}

TEST_F(LogTest, ALineThatGoesPastTheHandlerTakesItsComplaintsAlong) {
  const auto results =
      test::spawn_ranks({.body = "logs_past_the_handler_first", .environment = {{"RANK", "not a number"}}});
  test::expect_all_passed(results);
  EXPECT_THAT(results[0].output, HasSubstr("RANK='not a number' is not a number"));
  EXPECT_THAT(results[0].output, HasSubstr("past it"));
}

DBG_RANK_BODY(logs_to_a_file_that_may_not_grow) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const int own = ::dup(STDERR_FILENO);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{500, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  ::dup2(::fileno(file), STDERR_FILENO);
  for (int i = 0; i < 20; ++i) log(LogLevel::info, "dbg", "line {} {}", i, std::string(100, 'x'));
  ::dup2(own, STDERR_FILENO);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  sigset_t pending;
  ::sigemptyset(&pending);
  EXPECT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(::sigismember(&pending, SIGXFSZ), 0);
  EXPECT_EQ(::lseek(::fileno(file), 0, SEEK_END), 500);
  std::fclose(file);
  log(LogLevel::info, "dbg", "still here");
}

TEST_F(LogTest, AFileBeyondItsLimitDoesNotEndTheProgram) {
  const auto results = test::spawn_ranks({.body = "logs_to_a_file_that_may_not_grow"});
  test::expect_all_passed(results);
  EXPECT_THAT(results[0].output, HasSubstr("still here"));
}

DBG_RANK_BODY(logs_to_a_reader_that_sleeps) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int own = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) log(LogLevel::info, "dbg", "line {} {}", i, std::string(200, 'x'));
  const auto waited = std::chrono::steady_clock::now() - start;

  // It wakes up and reads what is there; then a line gets through again.
  ASSERT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  std::string read;
  char some[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], some, sizeof some)) > 0;) read.append(some, std::size_t(size));
  log(LogLevel::info, "dbg", "awake");
  log(LogLevel::info, "dbg", "as before");
  std::string later;
  for (ssize_t size = 0; (size = ::read(ends[0], some, sizeof some)) > 0;) later.append(some, std::size_t(size));
  ::dup2(own, STDERR_FILENO);

  EXPECT_LT(waited, std::chrono::seconds(30)) << "one wait for all lines, not one for each";
  EXPECT_THAT(read, HasSubstr("] line 0 x"));
  const auto arrived = std::count(read.begin(), read.end(), '\n');
  EXPECT_LT(arrived, 2000);
  EXPECT_THAT(later, HasSubstr(formatted("] awake ({} lines before this one are lost", 2000 - arrived)));
  EXPECT_THAT(later, MatchesRegex("(.|\n)*\\] as before\n"));
}

TEST_F(LogTest, AReaderThatSleepsDoesNotStopTheProgram) {
  const auto results = test::spawn_ranks({.body = "logs_to_a_reader_that_sleeps"});
  test::expect_all_passed(results);
}

TEST_F(LogTest, ThreadsMayLogWhileTheHandlerChanges) {
  std::atomic<int> handled{0};
  const auto count = [&handled](LogLevel, std::string_view) { ++handled; };
  set_log_handler(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int line = 0; line < 500; ++line) log(LogLevel::info, "dbg", "line {}", line);
    });
  }
  for (int i = 0; i < 200; ++i) set_log_handler(count);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(handled, 2000);
}

DBG_RANK_BODY(logs_from_four_threads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int line = 0; line < 100; ++line) log(LogLevel::info, "dbg", "thread {} {}", i, std::string(200, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LogTest, LinesOfSeveralThreadsDoNotMix) {
  const auto results = test::spawn_ranks({.body = "logs_from_four_threads"});
  test::expect_all_passed(results);
  std::size_t whole = 0;
  std::size_t at = 0;
  while (at < results[0].output.size()) {
    const std::size_t end = results[0].output.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const std::string line = results[0].output.substr(at, end - at);
    EXPECT_THAT(line, MatchesRegex("\\[dbg, rank=0, t=[0-9.]+\\] thread [0-3] x+"));
    EXPECT_THAT(line, testing::EndsWith(std::string(200, 'x')));
    ++whole;
    at = end + 1;
  }
  EXPECT_EQ(whole, 400U);
}

}  // namespace
}  // namespace dbg
