// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever foreign code throws becomes one line of words.
#include "base/fence.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/sanitizers.h"

namespace dbg::base {
namespace {

using testing::HasSubstr;
using testing::Not;

template <class Thrown>
std::string cause_of(const Thrown& thrown) {
  return run_fenced([&] { throw thrown; }).value_or("(nothing)");
}

TEST(FenceTest, CodeThatComesThroughHasNoCause) {
  bool ran = false;
  EXPECT_EQ(run_fenced([&] { ran = true; }), std::nullopt);
  EXPECT_TRUE(ran);
}

TEST(FenceTest, AStandardExceptionGivesItsWords) {
  EXPECT_EQ(cause_of(std::runtime_error("the words")), "the words");
  EXPECT_EQ(cause_of(std::bad_alloc()), "out of memory");
}

TEST(FenceTest, WhatIsNoExceptionHasACauseToo) {
  EXPECT_EQ(cause_of(std::string("a string")), "a string");
  EXPECT_EQ(cause_of(static_cast<const char*>("a literal")), "a literal");
  EXPECT_EQ(cause_of(static_cast<const char*>(nullptr)), "");
  EXPECT_EQ(cause_of(42), "an exception that is not a std::exception");
  struct Own {};
  EXPECT_EQ(cause_of(Own{}), "an exception that is not a std::exception");
}

TEST(FenceTest, ATorchErrorComesWithoutItsBacktrace) {
  const auto cause = run_fenced([] { TORCH_CHECK(false, "sizes ", 3, " and ", 4, " differ"); });
  ASSERT_TRUE(cause.has_value());
  EXPECT_THAT(*cause, HasSubstr("sizes 3 and 4 differ"));
  EXPECT_THAT(*cause, Not(HasSubstr("frame #")));
  EXPECT_THAT(*cause, Not(HasSubstr("Exception raised from")));
  EXPECT_THAT(*cause, Not(HasSubstr("\n")));
  const auto copied = run_fenced([] {
    try {
      TORCH_CHECK(false, "inner words");
    } catch (const std::exception& error) {
      throw std::runtime_error(error.what());  // backtrace and all, as text
    }
  });
  EXPECT_THAT(copied.value_or(""), HasSubstr("inner words"));
  EXPECT_THAT(copied.value_or(""), Not(HasSubstr("frame #")));
}

TEST(FenceTest, ACauseIsOneLineOfBoundedLength) {
  EXPECT_EQ(cause_of(std::runtime_error("two\nlines\r\n")), "two lines");
  EXPECT_LE(cause_of(std::runtime_error(std::string(1 << 20, 'x'))).size(), 2000U);
}

TEST(FenceTest, ACancelledThreadUnwindsThroughAFence) {
  if (test::kUnderAddressSanitizer) GTEST_SKIP() << "AddressSanitizer loses track of a cancelled thread's stack";
  std::atomic<bool> unwound{false};
  std::atomic<bool> went_on{false};
  std::thread thread([&] {
    struct AtEnd {
      std::atomic<bool>& flag;
      ~AtEnd() { flag = true; }
    } at_end{unwound};
    // Cancelled before it starts to wait, so nothing here depends on who is faster.
    ::pthread_cancel(::pthread_self());
    run_fenced([] {
      for (;;) ::pause();
    });
    went_on = true;
  });
  thread.join();
  EXPECT_TRUE(unwound);
  EXPECT_FALSE(went_on);
}

TEST(RepeatLimiterTest, SpeaksAtTheFirstAndAtPowersOfTwo) {
  RepeatLimiter limiter;
  std::vector<std::uint64_t> spoken;
  for (int i = 0; i < 100; ++i) {
    if (const std::uint64_t number = limiter.hit()) spoken.push_back(number);
  }
  EXPECT_EQ(spoken, (std::vector<std::uint64_t>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(limiter.count(), 100U);
}

TEST(RepeatLimiterTest, CountsEachHitOfSeveralThreads) {
  RepeatLimiter limiter;
  std::atomic<int> spoken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int hit = 0; hit < 1000; ++hit) spoken += limiter.hit() != 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(limiter.count(), 4000U);
  EXPECT_EQ(spoken, 12);  // 1, 2, 4 ... 2048
}

}  // namespace
}  // namespace dbg::base
