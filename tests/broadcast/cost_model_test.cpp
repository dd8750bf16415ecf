// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The model's sums against the rules of thumb that it stands on.
#include "broadcast/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

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

// The page's table, computed anew.
TEST(CostModelTest, TheTableOfThePageIsTheModels) {
  const char* folder = std::getenv("DBG_TEST_SOURCE_DIR");
  ASSERT_NE(folder, nullptr);
  std::ifstream page(std::string(folder) + "/docs/weight_broadcaster.md");
  int rows = 0;
  bool is_in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("| consumers |", 0) == 0) is_in_table = true;
    if (line.empty()) is_in_table = false;
    std::istringstream cells(line);
    char bar = 0;
    int consumers = 0;
    double seconds = 0;
    std::string limit;
    CostInput input = base();
    if (!is_in_table || !(cells >> bar >> consumers >> bar >> input.consumer_nodes >> bar >> input.consumers_per_node >>
                          bar >> input.num_senders >> bar >> input.cards_per_consumer_node >> bar >> seconds >> bar)) {
      continue;
    }
    std::getline(cells, limit, '|');
    input.total_bytes = 54000000000;
    input.card_rate = 25e9;
    input.local_rate = 200e9;
    input.bucket_bytes = 1 << 30;
    input.chunk_bytes = 1 << 20;
    input.hop_seconds = 20e-6;
    input.bucket_seconds = 1e-3;
    EXPECT_EQ(consumers, input.consumer_nodes * input.consumers_per_node) << line;
    const CostEstimate cost = estimate_cost(input);
    EXPECT_NEAR(cost.seconds, seconds, 0.001) << line;
    EXPECT_EQ(limit, " " + cost.limit + " ") << line;
    ++rows;
  }
  EXPECT_GE(rows, 8);
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
