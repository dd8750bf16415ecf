// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Stacks of threads that sit still.
#include "support/thread_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>
#include <string>
#include <thread>

#include "support/sanitizers.h"

namespace dbg::test {
namespace {

TEST(ThreadStacksTest, ShowsEachThreadUnderItsName) {
  if (kUnderThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer delivers no signal to a thread that waits";
  std::promise<void> started;
  std::promise<void> end;
  std::thread thread([&] {
    name_this_thread("a name longer than fifteen");
    started.set_value();
    end.get_future().wait();
  });
  started.get_future().wait();
  const std::string text = stacks_of_other_threads();
  end.set_value();
  thread.join();
  EXPECT_THAT(text, testing::HasSubstr("(a name longer t)"));
  EXPECT_THAT(text, testing::HasSubstr("    #0 "));
  EXPECT_THAT(text, testing::HasSubstr("ThreadStacksTest_ShowsEachThreadUnderItsName"));
}

TEST(ThreadStacksTest, AThreadThatBlocksSignalsIsListed) {
  std::promise<void> started;
  std::promise<void> end;
  std::thread thread([&] {
    name_this_thread("deaf");
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    started.set_value();
    end.get_future().wait();
  });
  started.get_future().wait();
  const std::string text = stacks_of_other_threads();
  end.set_value();
  thread.join();
  EXPECT_THAT(text, testing::HasSubstr("(deaf):\n    no answer\n"));
}

}  // namespace
}  // namespace dbg::test
