// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Messages: tags, strides, deadlines, signals, and peers that die in the middle.
#include "distributed/p2p.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/gloo_halves.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Body>
CommFailure failure_of(Body&& body, milliseconds limit) {
  const auto started = steady_clock::now();
  try {
    body();
  } catch (const CommError& error) {
    EXPECT_LT(steady_clock::now() - started, limit) << error.what();
    return error.failure();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

at::Tensor message(int from, int number, at::ScalarType dtype = at::kFloat) {
  return (at::arange(6, at::kFloat) + 10 * from + number).reshape({2, 3}).to(dtype);
}

// Every rank sends to the next, around the end; even ones first.
DBG_HALF_CASE(MessagesGoAround) {
  if (half.size() == 1) return;
  const int next = (half.rank_in_group + 1) % half.size();
  const int previous = (half.rank_in_group + half.size() - 1) % half.size();
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kShort, at::kBool, at::kComplexFloat}) {
    at::Tensor got = at::zeros({2, 3}, dtype);
    if (half.rank_in_group % 2 == 0) {
      send(half, message(half.rank_in_group, 0, dtype), next);
      recv(half, got, previous);
    } else {
      recv(half, got, previous);
      send(half, message(half.rank_in_group, 0, dtype), next);
    }
    EXPECT_TRUE(at::equal(got, message(previous, 0, dtype))) << dtype;
  }
}

DBG_HALF_CASE(StridedAndEmptyMessagesArrive) {
  if (half.size() == 1 || half.rank_in_group > 1) return;
  at::Tensor block = at::full({3, 4}, 77.0F);
  const at::Tensor column_pairs = block.slice(1, 0, 4, 2).t();
  const at::Tensor empty = at::empty({0});
  if (half.rank_in_group == 0) {
    send(half, message(0, 1).t().contiguous().t(), 1);
    send(half, empty, 1);
    return;
  }
  recv(half, column_pairs, 0);
  recv(half, empty, 0);
  EXPECT_TRUE(at::equal(column_pairs, message(0, 1)));
  EXPECT_TRUE(block.slice(1, 1, 4, 2).eq(77.0F).all().item<bool>());
}

DBG_HALF_CASE(TagsPassEachOtherBy) {
  if (half.size() == 1 || half.rank_in_group > 1) return;
  if (half.rank_in_group == 0) {
    const at::Tensor first = message(0, 1);
    const at::Tensor second = message(0, 2);
    PendingMessage slow = begin_send(half, first, 1, 5);
    PendingMessage fast = begin_send(half, second, 1, 6);
    fast.wait();
    slow.wait();
    slow.wait();  // a second time is nothing
    return;
  }
  at::Tensor got = at::zeros({2, 3});
  recv(half, got, 0, 6);
  EXPECT_TRUE(at::equal(got, message(0, 2)));
  PendingMessage pending = begin_recv(half, got, 0, 5);
  pending.wait();
  EXPECT_TRUE(at::equal(got, message(0, 1)));
}

DBG_HALF_CASE(WrongPeersAndTagsAreRefused) {
  const at::Tensor tensor = at::ones({2});
  EXPECT_THROW(send(half, tensor, half.rank_in_group), ConfigError);
  EXPECT_THROW(recv(half, tensor, half.rank_in_group), ConfigError);
  EXPECT_THROW(send(half, tensor, half.size()), ConfigError);
  EXPECT_THROW(recv(half, tensor, -1), ConfigError);
  if (half.size() == 1) return;
  const int other = (half.rank_in_group + 1) % half.size();
  EXPECT_THROW(send(half, tensor, other, -1), ConfigError);
  EXPECT_THROW(begin_recv(half, tensor, half.rank_in_group), ConfigError);
  EXPECT_THROW(begin_recv(half, at::ones({1}).expand({2}), other), ConfigError);
  EXPECT_FALSE(half.broken.is_set());
}

DBG_RANK_BODY(runs_a_case_of_messages) {
  test::run_case_in_process(context);
}

class MessageTest : public testing::TestWithParam<test::HalfCase> {};

TEST_P(MessageTest, Arrives) {
  test::run_half_case(GetParam(), "runs_a_case_of_messages");
}

INSTANTIATE_TEST_SUITE_P(All, MessageTest, testing::ValuesIn(test::all_half_cases(__FILE__)), test::name_of_half_case);

TEST(MessageFailureTest, AMessageThatNeverComesTimesOutAndNamesTheSender) {
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) return;
    const CommFailure failure =
        failure_of([&] { recv(half, at::ones({2}), 1, 0, {.timeout = milliseconds(500)}); }, milliseconds(1500));
    EXPECT_EQ(failure.kind, CommErrorKind::timeout);
    EXPECT_EQ(failure.operation, "recv");
    EXPECT_THAT(failure.peers, ElementsAre(half.ranks[1]));
    EXPECT_TRUE(half.broken.is_set());
  });
}

TEST(MessageFailureTest, AMessageThatNobodyTakesTimesOutAndNamesTheReceiver) {
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) return;
    const CommFailure failure =
        failure_of([&] { send(half, at::ones({1 << 22}), 1, 0, {.timeout = milliseconds(500)}); }, milliseconds(1500));
    EXPECT_EQ(failure.kind, CommErrorKind::timeout);
    EXPECT_THAT(failure.peers, ElementsAre(half.ranks[1]));
  });
}

TEST(MessageFailureTest, AClosedGroupSaysSoBeforeItLooksAtTheTensor) {
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    half.take_backends();
    const int other = 1 - half.rank_in_group;
    const auto begins = [&] { static_cast<void>(begin_send(half, at::ones({2}), other)); };
    EXPECT_THAT(failure_of(begins, milliseconds(1000)).cause, HasSubstr("closed"));
    EXPECT_THAT(failure_of([&] { send(half, at::ones({2}), other); }, milliseconds(1000)).cause, HasSubstr("closed"));
  });
}

TEST(MessageFailureTest, ASignalEndsTheWait) {
  AbortSignal signal;
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) return;
    std::thread other([&] { signal.raise("rank 7 gave up"); });
    const CommFailure failure =
        failure_of([&] { recv(half, at::ones({2}), 1, 0, {.timeout = std::chrono::seconds(30), .abort = &signal}); },
                   milliseconds(3000));
    other.join();
    EXPECT_EQ(failure.kind, CommErrorKind::broken);
    EXPECT_THAT(failure.cause, HasSubstr("aborted: rank 7 gave up"));
  });
}

TEST(MessageFailureTest, AMessageNobodyWaitedForBreaksTheGroup) {
  test::run_halves_as_threads(2, [&](GroupHalf& half) {
    if (half.rank_in_group == 1) return;
    at::Tensor into = at::ones({2});
    { const PendingMessage forgotten = begin_recv(half, into, 1); }
    EXPECT_TRUE(half.broken.is_set());
  });
}

// Rank 1 sends without end and is killed while it does.
DBG_RANK_BODY(receives_until_the_sender_dies) {
  test::run_half_in_process(context, context.argument, [&](GroupHalf& half) {
    at::Tensor tensor = at::zeros({1 << 20});
    if (half.rank_in_group == 1) {
      send(half, tensor, 0);
      std::printf("ready\n");
      std::fflush(stdout);
      for (;;) send(half, tensor, 0);
    }
    try {
      for (;;) recv(half, tensor, 1, 0, {.timeout = std::chrono::seconds(3)});
    } catch (const CommError& error) {
      EXPECT_TRUE(error.kind() == CommErrorKind::peer_lost || error.kind() == CommErrorKind::timeout) << error.what();
      EXPECT_LT(error.failure().elapsed, std::chrono::seconds(4));
      EXPECT_THAT(error.failure().peers, ElementsAre(half.ranks[1]));
    }
    ::_exit(testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0);
  });
}

TEST(LostPeerTest, AtARandomPointIsAnErrorInTime) {
  std::mt19937 random(20240611);
  const int rounds = test::kUnderThreadSanitizer ? 1 : 5;
  for (int round = 0; round < rounds; ++round) {
    const test::TempFolder folder;
    test::RankProcesses ranks(
        {.body = "receives_until_the_sender_dies", .world_size = 2, .argument = (folder / "store").string()});
    ranks.wait_for_output(1, "ready");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50000));
    ranks.kill(1);
    EXPECT_TRUE(ranks.wait()[0].passed());
  }
}

}  // namespace
}  // namespace dbg::distributed
