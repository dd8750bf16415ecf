// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The monitor between the two threads: order, bounds, and waits that a signal ends.
#include "broadcast/bucket_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace dbg::broadcast {
namespace {

std::vector<at::Tensor> slots(int count) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < count; ++i) all.push_back(at::empty({8}, at::kByte));
  return all;
}

BucketItem numbered(std::uint64_t number) {
  BucketItem item;
  item.message.header.bucket = number;
  return item;
}

TEST(BucketExchangeTest, BucketsComeInOrderAndMemoryGoesRound) {
  BucketExchange exchange(slots(2), std::make_shared<distributed::AbortSignal>());
  std::thread wire([&] {
    for (std::uint64_t i = 0; i < 100;) {
      auto item = exchange.pop_unless_memory_is_wanted();
      if (!item) continue;  // the other side waits for what this one releases next
      EXPECT_EQ(item->message.header.bucket, i++);
      exchange.release(item->slot);
    }
  });
  for (std::uint64_t i = 0; i < 100; ++i) {
    BucketItem item = numbered(i);
    item.slot = exchange.acquire();
    exchange.push(std::move(item));
  }
  wire.join();
  EXPECT_LE(exchange.most_in_use(), 2U);
  EXPECT_EQ(exchange.take_back().size(), 2U);
}

TEST(BucketExchangeTest, WhoWaitsForMemoryWakesWhoWaitsForBuckets) {
  BucketExchange exchange(slots(1), std::make_shared<distributed::AbortSignal>());
  at::Tensor only = exchange.acquire();
  EXPECT_FALSE(exchange.try_acquire());
  std::thread caller([&] { exchange.acquire(); });
  EXPECT_FALSE(exchange.pop_unless_memory_is_wanted());
  exchange.release(only);
  caller.join();
}

TEST(BucketExchangeTest, TheSignalEndsAllWaits) {
  const auto signal = std::make_shared<distributed::AbortSignal>();
  BucketExchange exchange({}, signal);
  std::thread waits_for_memory([&] { EXPECT_THROW(exchange.acquire(), Interrupted); });
  std::thread waits_for_bucket([&] { EXPECT_THROW(exchange.pop(), Interrupted); });
  signal->raise("over");
  waits_for_memory.join();
  waits_for_bucket.join();
  // Also what is there is not handed out any more.
  exchange.push(numbered(0));
  EXPECT_THROW(exchange.pop(), Interrupted);
}

TEST(BucketMemoryTest, IsKeptWhenItIsLargeEnough) {
  BucketMemory memory;
  const at::Tensor first = memory.take(100);
  EXPECT_EQ(first.numel(), 100);
  const void* where = first.const_data_ptr();
  memory.give_back(first);
  EXPECT_EQ(memory.size_bytes(), 100U);
  EXPECT_NE(memory.take(200).const_data_ptr(), where);
  EXPECT_EQ(memory.take(50).const_data_ptr(), where);
  memory.clear();
  EXPECT_EQ(memory.size_bytes(), 0U);
}

}  // namespace
}  // namespace dbg::broadcast
