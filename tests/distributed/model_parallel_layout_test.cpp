// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The layouts that SGLang and vLLM document, and what every layout must keep.
#include "dbg/model_parallel_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg {
namespace {

using Groups = std::vector<std::vector<int>>;
using testing::HasSubstr;

const Groups& groups_of(const ModelParallelLayout& layout, const std::string& name) {
  static const Groups none;
  const ParallelGroup* group = layout.find(name);
  if (group == nullptr) ADD_FAILURE() << "no group " << name;
  return group != nullptr ? group->group_ranks : none;
}

std::vector<std::string> names_of(const ModelParallelLayout& layout) {
  std::vector<std::string> names;
  for (const ParallelGroup& group : layout.groups()) names.push_back(group.name);
  return names;
}

TEST(ModelParallelLayoutTest, TensorAndPipelineAsBothTwinsHaveThem) {
  ParallelSizes sizes;
  sizes.tp = 2;
  sizes.pp = 4;
  const auto layout = make_layout(8, sizes);
  EXPECT_EQ(groups_of(layout, "tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(layout, "pp"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(names_of(layout), (std::vector<std::string>{"tp", "pp"}));
  EXPECT_EQ(layout.find("dp"), nullptr);
}

TEST(ModelParallelLayoutTest, VllmsOrder) {
  ParallelSizes sizes;
  sizes.dp = 2;
  sizes.pp = 2;
  sizes.tp = 2;
  sizes.experts_over_dp = true;
  const auto layout = make_layout(8, sizes);
  EXPECT_EQ(groups_of(layout, "tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups_of(layout, "pp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups_of(layout, "dp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of(layout, "ep"), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
}

TEST(ModelParallelLayoutTest, SglangsAttentionAndExperts) {
  ParallelSizes sizes;
  sizes.tp = 8;
  sizes.cp = 2;
  sizes.ep = 4;
  sizes.moe_dp = 2;
  const auto layout = make_layout(8, sizes);
  EXPECT_EQ(groups_of(layout, "attn_tp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups_of(layout, "attn_cp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of(layout, "moe_ep"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups_of(layout, "moe_dp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups_of(layout, "moe_tp"), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(groups_of(layout, "attn_dp").size(), 8U);
}

TEST(ModelParallelLayoutTest, SglangsDivisionsStayWithinAStage) {
  ParallelSizes sizes;
  sizes.pp = 2;
  sizes.tp = 8;
  sizes.attn_dp = 2;
  sizes.cp = 2;
  sizes.ep = 2;
  const auto layout = make_layout(16, sizes);
  EXPECT_EQ(groups_of(layout, "attn_tp"),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups_of(layout, "attn_cp"),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups_of(layout, "attn_dp"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(groups_of(layout, "moe_tp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(groups_of(layout, "moe_ep"),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  // Fewer copies of the experts than context ranks: those are the ones who share.
  EXPECT_EQ(groups_of(layout, "moe_dp"), groups_of(layout, "attn_cp"));
}

TEST(ModelParallelLayoutTest, EveryLayoutPutsEachRankInOneGroupOfEachName) {
  for (const int pp : {1, 2, 3}) {
    for (const int tp : {1, 2, 4, 8}) {
      for (const int cp : {1, 2}) {
        for (const int ep : {1, 2, 4}) {
          if (tp % cp != 0 || tp % ep != 0) continue;
          ParallelSizes sizes;
          sizes.pp = pp;
          sizes.tp = tp;
          sizes.cp = cp;
          sizes.ep = ep;
          const auto layout = make_layout(pp * tp, sizes);
          std::vector<int> wanted(static_cast<std::size_t>(pp * tp));
          std::iota(wanted.begin(), wanted.end(), 0);
          for (const ParallelGroup& group : layout.groups()) {
            std::vector<int> all;
            for (const auto& ranks : group.group_ranks) {
              EXPECT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
              EXPECT_EQ(ranks.size(), group.group_ranks.front().size());
              all.insert(all.end(), ranks.begin(), ranks.end());
            }
            std::sort(all.begin(), all.end());
            EXPECT_EQ(all, wanted) << group.name << formatted(" pp {} tp {} cp {} ep {}", pp, tp, cp, ep);
          }
        }
      }
    }
  }
}

TEST(ModelParallelLayoutTest, StateSaysWhereARankStands) {
  ParallelSizes sizes;
  sizes.dp = 2;
  sizes.pp = 2;
  sizes.tp = 2;
  const auto layout = make_layout(8, sizes);
  const ParallelState state = layout.state_of(6);
  EXPECT_EQ(state.find("tp"), (ParallelAxis{"tp", 0, 2}));
  EXPECT_EQ(state.find("pp"), (ParallelAxis{"pp", 1, 2}));
  EXPECT_EQ(state.find("dp"), (ParallelAxis{"dp", 1, 2}));
  EXPECT_THROW(layout.state_of(8), ConfigError);
  EXPECT_THROW(layout.state_of(-1), ConfigError);
}

struct WrongSizes {
  const char* name;
  int world_size;
  ParallelSizes sizes;
  const char* words;
};

ParallelSizes sizes_of(int tp, int pp, int dp, int attn_dp, int cp, int ep, int moe_dp) {
  ParallelSizes sizes;
  sizes.tp = tp;
  sizes.pp = pp;
  sizes.dp = dp;
  sizes.attn_dp = attn_dp;
  sizes.cp = cp;
  sizes.ep = ep;
  sizes.moe_dp = moe_dp;
  return sizes;
}

class WrongSizesTest : public testing::TestWithParam<WrongSizes> {};

TEST_P(WrongSizesTest, AreAConfigErrorWithTheNumbers) {
  try {
    make_layout(GetParam().world_size, GetParam().sizes);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().words));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongSizesTest,
    testing::Values(
        WrongSizes{"product", 8, sizes_of(2, 2, 1, 1, 1, 1, 1), "dp 1 x pp 2 x tp 2 = 4 ranks, and the world has 8"},
        WrongSizes{"zero", 8, sizes_of(0, 8, 1, 1, 1, 1, 1), "tp is 0"},
        WrongSizes{"negative", 8, sizes_of(8, 1, 1, 1, -2, 1, 1), "cp is -2"},
        WrongSizes{"attention", 8, sizes_of(8, 1, 1, 1, 3, 1, 1), "tp 8 is not divisible by attn_dp 1 x cp 3 = 3"},
        WrongSizes{"experts", 8, sizes_of(8, 1, 1, 1, 1, 4, 4), "tp 8 is not divisible by moe_dp 4 x ep 4 = 16"},
        WrongSizes{"both", 8, sizes_of(4, 1, 2, 1, 2, 1, 1), "set those of one only"},
        WrongSizes{"overflow", 8, sizes_of(1 << 30, 1 << 30, 1 << 30, 1, 1, 1, 1), "ranks, and the world has 8"}),
    [](const testing::TestParamInfo<WrongSizes>& sizes) { return sizes.param.name; });

}  // namespace
}  // namespace dbg
