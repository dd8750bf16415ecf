// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about signals that a failed write sends: held back, taken, and left where they were.
#include "base/held_signals.h"

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

// A program that holds the signal back itself is not left with one of ours, and keeps one of its own.
TEST(HeldSignalsTest, AProgramThatHoldsThemBackItselfFindsThemAsTheyWere) {
  const BrokenPipe pipe;
  const HeldSignals program({SIGPIPE});
  {
    const HeldSignals ours({SIGPIPE, SIGXFSZ});
    EXPECT_EQ(pipe.write(), EPIPE);
  }
  EXPECT_TRUE(is_blocked());
  EXPECT_FALSE(is_pending());
  EXPECT_EQ(pipe.write(), EPIPE);
  {
    const HeldSignals ours({SIGPIPE, SIGXFSZ});
    EXPECT_EQ(pipe.write(), EPIPE);
  }
  EXPECT_TRUE(is_pending());
}

TEST(HeldSignalsTest, ErrnoIsTheWrites) {
  const BrokenPipe pipe;
  {
    const HeldSignals ours({SIGPIPE});
    EXPECT_EQ(pipe.write(), EPIPE);
    errno = EPIPE;
  }
  EXPECT_EQ(errno, EPIPE);
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
