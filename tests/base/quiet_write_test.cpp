// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about writes that fail, or could wait, in a program that has no handler for their signals.
#include "base/quiet_write.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace dbg::base {
namespace {

// Both ends of something that one writes and the other reads.
struct Ends {
  ~Ends() {
    ::close(reader);
    ::close(writer);
  }
  int reader = -1;
  int writer = -1;
};

void open_pipe(Ends& ends) {
  int both[2];
  ASSERT_EQ(::pipe(both), 0);
  ends.reader = both[0];
  ends.writer = both[1];
}

void open_sockets(Ends& ends) {
  int both[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
  ends.reader = both[0];
  ends.writer = both[1];
}

bool is_pending(int signal) {
  sigset_t pending;
  ::sigemptyset(&pending);
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
}

TEST(QuietWriteTest, AReaderThatIsGoneIsAnError) {
  for (const auto open : {&open_pipe, &open_sockets}) {
    Ends ends;
    open(ends);
    ::close(ends.reader);
    ends.reader = -1;
    EXPECT_EQ(write_quietly(ends.writer, "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(write_without_waiting(ends.writer, "x", 1, 1000), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_FALSE(is_pending(SIGPIPE));
  }
}

TEST(QuietWriteTest, WhatReadsNothingIsWaitedForNoLongerThanSaid) {
  for (const auto open : {&open_pipe, &open_sockets}) {
    Ends ends;
    open(ends);
    const std::string text(1000, 'x');
    std::size_t sent = 0;
    ssize_t written = 0;
    while ((written = write_without_waiting(ends.writer, text.data(), text.size(), 0)) > 0) {
      sent += static_cast<std::size_t>(written);
    }
    EXPECT_EQ(written, -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_GT(sent, 4000u);
    EXPECT_EQ(write_without_waiting(ends.writer, text.data(), text.size(), 20), -1);
    EXPECT_EQ(errno, EAGAIN);
    std::string read(sent, ' ');
    EXPECT_GT(::read(ends.reader, read.data(), read.size()), 0);
    EXPECT_GT(write_without_waiting(ends.writer, text.data(), text.size(), 0), 0);
  }
}

TEST(QuietWriteTest, NoDescriptorIsAnError) {
  EXPECT_EQ(write_without_waiting(-1, "x", 1, 1000), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace dbg::base
