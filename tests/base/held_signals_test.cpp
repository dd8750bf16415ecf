// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about writing where nobody reads.
#include "base/no_sigpipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <thread>

namespace dbg::base {
namespace {

bool is_blocked() {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return ::sigismember(&mask, SIGPIPE) == 1;
}

bool is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

// Its reader is gone.
class BrokenPipe {
 public:
  BrokenPipe() {
    if (::pipe(ends_) != 0) throw std::runtime_error("no pipe");
    ::close(ends_[0]);
  }
  ~BrokenPipe() { ::close(ends_[1]); }
  int write() const { return ::write(ends_[1], "x", 1) < 0 ? errno : 0; }

 private:
  int ends_[2];
};

TEST(NoSigpipeTest, ABrokenPipeIsAnErrorAndLeavesNothingBehind) {
  const BrokenPipe pipe;
  ASSERT_FALSE(is_blocked());
  {
    const NoSigpipe quiet;
    EXPECT_EQ(pipe.write(), EPIPE);
    EXPECT_TRUE(is_pending());
  }
  EXPECT_FALSE(is_pending());
  EXPECT_FALSE(is_blocked());
}

TEST(NoSigpipeTest, OneInsideAnotherChangesNothing) {
  const BrokenPipe pipe;
  const NoSigpipe outer;
  {
    const NoSigpipe inner;
    EXPECT_EQ(pipe.write(), EPIPE);
  }
  EXPECT_TRUE(is_blocked());
  EXPECT_EQ(pipe.write(), EPIPE);
}

TEST(NoSigpipeTest, ThreadsThatAreStartedMeanwhileKeepIt) {
  const BrokenPipe pipe;
  std::thread writer;
  {
    const NoSigpipe quiet;
    writer = std::thread([&] {
      EXPECT_TRUE(is_blocked());
      EXPECT_EQ(pipe.write(), EPIPE);
    });
  }
  writer.join();
}

}  // namespace
}  // namespace dbg::base
