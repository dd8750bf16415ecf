// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A thread that ends in time is joined, one that does not is left behind with what it owns.
#include "broadcast/wire_thread.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <thread>

namespace dbg::broadcast {
namespace {

TEST(WireThreadTest, RunsAndIsJoined) {
  std::atomic<int> runs{0};
  WireThread thread([&] { ++runs; });
  EXPECT_TRUE(thread.join_for(std::chrono::seconds(10)));
  EXPECT_TRUE(thread.join_for(std::chrono::seconds(0)));  // a second time is nothing
  EXPECT_EQ(runs.load(), 1);
}

TEST(WireThreadTest, WritesToAnEndThatIsGoneAreErrorsThereAndOnItsOwnThreads) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto write_one = [&] { return ::write(ends[1], "x", 1) == -1 ? errno : 0; };
  std::atomic<int> own{0};
  std::atomic<int> childs{0};
  WireThread thread([&] {
    own = write_one();
    std::thread([&] { childs = write_one(); }).join();
  });
  EXPECT_TRUE(thread.join_for(std::chrono::seconds(10)));
  EXPECT_EQ(own.load(), EPIPE);
  EXPECT_EQ(childs.load(), EPIPE);
  ::close(ends[1]);
}

TEST(WireThreadTest, OneThatDoesNotEndIsLeftBehindWithWhatItOwns) {
  const auto owned = std::make_shared<std::promise<void>>();
  std::weak_ptr<std::promise<void>> still_there = owned;
  std::promise<void> released;
  {
    WireThread thread(
        [its_own = owned, may_end = std::make_shared<std::future<void>>(released.get_future())]() mutable {
          may_end->wait_for(std::chrono::seconds(30));
          auto last = its_own;
          its_own.reset();
          last->set_value();
        });
    EXPECT_FALSE(thread.join_for(std::chrono::milliseconds(20)));
  }
  auto has_ended = owned->get_future();
  EXPECT_FALSE(still_there.expired());
  released.set_value();
  EXPECT_EQ(has_ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

}  // namespace
}  // namespace dbg::broadcast
