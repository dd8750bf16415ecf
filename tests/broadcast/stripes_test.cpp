// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Every byte reaches every consumer once, over the links that are meant.
#include "broadcast/stripes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dbg::broadcast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(StripesTest, RangesFollowEachOtherAndAreEven) {
  for (const std::uint64_t length : {0UL, 1UL, 63UL, 64UL, 65UL, 1000UL, 4096UL, 1000003UL}) {
    for (int count = 1; count <= 9; ++count) {
      std::uint64_t end = 0;
      std::uint64_t most = 0;
      std::uint64_t least = ~0UL;
      for (int stripe = 0; stripe < count; ++stripe) {
        const ByteRange range = stripe_range(length, count, stripe);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.end, range.begin);
        end = range.end;
        most = std::max(most, range.size());
        least = std::min(least, range.size());
      }
      EXPECT_EQ(end, length);
      EXPECT_LE(most - least, 128U) << length << " in " << count;
    }
  }
  EXPECT_EQ(stripe_range(256, 2, 1), (ByteRange{128, 256}));
}

TEST(StripesTest, OneSenderIsThePlainChain) {
  const std::vector<std::string> nodes{"a", "b", "b", "c", "c"};
  EXPECT_THAT(stripe_links(nodes, 1, 0)[0].to, ElementsAre(1));
  EXPECT_EQ(stripe_links(nodes, 1, 0)[0].from, -1);
  EXPECT_EQ(stripe_links(nodes, 1, 1)[0].from, 0);
  EXPECT_THAT(stripe_links(nodes, 1, 1)[0].to, ElementsAre(3, 2));  // the far one first
  EXPECT_EQ(stripe_links(nodes, 1, 2)[0].from, 1);
  EXPECT_THAT(stripe_links(nodes, 1, 2)[0].to, IsEmpty());
  EXPECT_EQ(stripe_links(nodes, 1, 3)[0].from, 1);
  EXPECT_THAT(stripe_links(nodes, 1, 3)[0].to, ElementsAre(4));
}

TEST(StripesTest, EachSenderHasAStripeAndAnEntryOfItsOwn) {
  const std::vector<std::string> nodes{"a", "a", "b", "b", "c", "c"};
  EXPECT_THAT(stripe_links(nodes, 2, 0)[0].to, ElementsAre(2));
  EXPECT_THAT(stripe_links(nodes, 2, 0)[1].to, ElementsAre(1));
  const auto relay = stripe_links(nodes, 2, 1);
  ASSERT_EQ(relay.size(), 1U);
  EXPECT_EQ(relay[0].stripe, 1);
  EXPECT_EQ(relay[0].from, 0);
  EXPECT_THAT(relay[0].to, ElementsAre(3));
  EXPECT_THAT(stripe_links(nodes, 2, 3)[1].to, ElementsAre(5, 2));
  EXPECT_EQ(stripe_links(nodes, 2, 3)[0].from, 2);
}

TEST(StripesTest, TheSendersOwnNodeComesFirst) {
  const std::vector<std::string> nodes{"a", "b", "a"};
  EXPECT_THAT(stripe_links(nodes, 1, 0)[0].to, ElementsAre(2));
  EXPECT_THAT(stripe_links(nodes, 1, 2)[0].to, ElementsAre(1));
}

// What one rank sends, another expects from it; each rank but the root gets a stripe from one other; no loops.
TEST(StripesTest, AnyTopologyIsATreePerStripe) {
  std::mt19937 random(99);
  for (int round = 0; round < 300; ++round) {
    const int senders = 1 + static_cast<int>(random() % 5);
    const int consumers = 1 + static_cast<int>(random() % 9);
    std::vector<std::string> nodes(static_cast<std::size_t>(senders), "a");
    for (int i = 0; i < consumers; ++i) nodes.push_back(std::string(1, static_cast<char>('a' + random() % 4)));
    const int size = senders + consumers;
    std::set<std::pair<std::pair<int, int>, int>> sent;  // ((from, to), stripe)
    std::set<std::pair<std::pair<int, int>, int>> expected;
    std::map<std::pair<int, int>, int> parent;  // (rank, stripe)
    for (int rank = 0; rank < size; ++rank) {
      for (const StripeLink& link : stripe_links(nodes, senders, rank)) {
        for (const int to : link.to) sent.insert({{rank, to}, link.stripe});
        if (link.from >= 0) expected.insert({{link.from, rank}, link.stripe});
        parent[{rank, link.stripe}] = link.from;
      }
    }
    ASSERT_EQ(sent, expected);
    for (int stripe = 0; stripe < senders; ++stripe) {
      for (int rank = senders; rank < size; ++rank) {
        int at = rank;
        int steps = 0;
        while (at != 0 && steps++ <= size) at = parent.at({at, stripe});
        ASSERT_EQ(at, 0);
      }
    }
    std::set<int> told{0};
    int edges = 0;
    for (int rank = 0; rank < size; ++rank) {
      for (const int to : control_link(nodes, senders, rank).to) {
        told.insert(to);
        ++edges;
        ASSERT_EQ(control_link(nodes, senders, to).from, rank);
      }
    }
    ASSERT_EQ(static_cast<int>(told.size()), size);
    ASSERT_EQ(edges, size - 1);
  }
}

}  // namespace
}  // namespace dbg::broadcast
