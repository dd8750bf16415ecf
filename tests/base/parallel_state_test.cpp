// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Axes: set, replaced, looked up, refused.
#include "dbg/parallel_state.h"

#include <gtest/gtest.h>

#include <string>

#include "dbg/error.h"

namespace dbg {
namespace {

TEST(ParallelStateTest, AxesKeepTheirOrderAndTheLastValueSet) {
  ParallelState state;
  EXPECT_TRUE(state.empty());
  state.set("tp", 1, 2).set("pp", 0, 4).set("tp", 0, 8);
  ASSERT_EQ(state.axes().size(), 2U);
  EXPECT_EQ(state.axes()[0], (ParallelAxis{"tp", 0, 8}));
  EXPECT_EQ(state.axes()[1], (ParallelAxis{"pp", 0, 4}));
  EXPECT_EQ(state.find("pp"), (ParallelAxis{"pp", 0, 4}));
  EXPECT_EQ(state.find("dp"), std::nullopt);
}

TEST(ParallelStateTest, EqualityIsOfNamesRanksSizesAndOrder) {
  const auto make = [](int rank) { return ParallelState().set("tp", rank, 2).set("cp", 0, 1); };
  EXPECT_TRUE(make(1) == make(1));
  EXPECT_FALSE(make(1) == make(0));
  EXPECT_FALSE(make(1) == ParallelState().set("cp", 0, 1).set("tp", 1, 2));
}

TEST(ParallelStateTest, AnyPlainWordIsAnAxis) {
  ParallelState state;
  for (const char* name : {"tp", "moe_ep", "recompute_pseudo", "X2"}) EXPECT_NO_THROW(state.set(name, 0, 1));
  for (const char* name : {"", "t p", "tp:", "tp=1", "a/b", "\u00e9", "tp\n"}) {
    EXPECT_THROW(state.set(name, 0, 1), ConfigError) << name;
  }
}

TEST(ParallelStateTest, RefusesARankOutsideTheSizeAndSaysBoth) {
  ParallelState state;
  for (const auto& [rank, size] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0), std::pair(0, -1)}) {
    try {
      state.set("tp", rank, size);
      ADD_FAILURE() << rank << " of " << size << " was accepted";
    } catch (const ConfigError& error) {
      const std::string words = error.what();
      EXPECT_NE(words.find("rank=" + std::to_string(rank)), std::string::npos) << words;
      EXPECT_NE(words.find("size=" + std::to_string(size)), std::string::npos) << words;
    }
  }
  EXPECT_TRUE(state.empty());
}

}  // namespace
}  // namespace dbg
