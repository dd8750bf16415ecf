// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The model's sums against the rules of thumb that it stands on.
#include "broadcast/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

CostInput base() {
  CostInput input;
  input.total_bytes = 1000000000;
  input.card_rate = 1e8;
  input.bucket_bytes = 100000000;
  input.chunk_bytes = 1000000;
  return input;
}

TEST(CostModelTest, OneLinkIsTheBytesOverItsRate) {
  const CostEstimate cost = estimate_cost(base());
  EXPECT_DOUBLE_EQ(cost.seconds, 10.0);
  EXPECT_EQ(cost.limit, "cards of the senders");
}

TEST(CostModelTest, TheGainIsTheLesserOfSendersAndCards) {
  for (int senders = 1; senders <= 8; ++senders) {
    for (int cards = 1; cards <= 8; ++cards) {
      CostInput input = base();
      input.num_senders = senders;
      input.consumers_per_node = 8;
      input.cards_per_consumer_node = cards;
      const double gain = 10.0 / estimate_cost(input).seconds;
      EXPECT_LE(gain, std::min(senders, cards) + 1e-9) << senders << " senders, " << cards << " cards";
      // Even where the stripes go evenly into the cards.
      if (senders % std::min(senders, cards) == 0) {
        EXPECT_NEAR(gain, std::min(senders, cards), 0.01);
      }
    }
  }
  CostInput one_card = base();
  one_card.num_senders = 4;
  one_card.consumers_per_node = 4;
  EXPECT_EQ(estimate_cost(one_card).limit, "cards of the consumers");
}

TEST(CostModelTest, MoreNodesOnlyFillThePipe) {
  CostInput input = base();
  input.consumer_nodes = 3;
  input.hop_seconds = 0.001;
  EXPECT_NEAR(estimate_cost(input).seconds, 10.0 + 2 * 0.011 + 0.001, 1e-9);
  input.consumer_nodes = 512;
  EXPECT_NEAR(estimate_cost(input).seconds, 10.0 + 511 * 0.011 + 0.001, 1e-9);
}

TEST(CostModelTest, ASlowPathWithinTheNodeIsNamed) {
  CostInput input = base();
  input.consumers_per_node = 8;
  input.local_rate = 1e8;
  const CostEstimate cost = estimate_cost(input);
  EXPECT_EQ(cost.limit, "path within a node");
  EXPECT_DOUBLE_EQ(cost.stream_seconds, 70.0);
}

TEST(CostModelTest, EachBucketCosts) {
  CostInput input = base();
  input.bucket_seconds = 0.01;
  EXPECT_NEAR(estimate_cost(input).seconds, 10.1, 1e-9);
  input.total_bytes += 1;
  EXPECT_NEAR(estimate_cost(input).bucket_seconds, 0.11, 1e-9);
}

TEST(CostModelTest, NonsenseIsRefused) {
  CostInput input = base();
  input.card_rate = 0;
  EXPECT_THROW(estimate_cost(input), ConfigError);
  input = base();
  input.num_senders = 0;
  EXPECT_THROW(estimate_cost(input), ConfigError);
  input = base();
  input.chunk_bytes = 0;
  EXPECT_THROW(estimate_cost(input), ConfigError);
}

}  // namespace
}  // namespace dbg::broadcast
