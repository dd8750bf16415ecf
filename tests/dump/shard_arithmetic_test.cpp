// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Shards: which rank holds what, and that all of them together are the whole.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/dims.h"
#include "dbg/error.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Sizes = std::vector<std::pair<std::string, int>>;

// All places of a grid of axes, the last axis running fastest.
std::vector<ParallelState> all_places(const Sizes& sizes) {
  std::vector<ParallelState> places = {ParallelState()};
  for (const auto& [axis, size] : sizes) {
    std::vector<ParallelState> next;
    for (const ParallelState& place : places) {
      for (int rank = 0; rank < size; ++rank) next.push_back(ParallelState(place).set(axis, rank, size));
    }
    places = std::move(next);
  }
  return places;
}

std::vector<Shard> all_shards(const Dims& dims, const at::Tensor& full, const Sizes& sizes,
                              const ShardOptions& options = {}) {
  std::vector<Shard> shards;
  for (const ParallelState& place : all_places(sizes)) {
    shards.push_back({shard_of(dims, full, place, options), place, static_cast<int>(shards.size())});
  }
  return shards;
}

std::string error_of(const std::string& dims, const std::vector<Shard>& shards, const ShardOptions& options = {}) {
  try {
    unshard(Dims::parse(dims), shards, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

using Ranges = std::vector<IndexRange>;

Ranges ranges(const std::string& dims, std::int64_t size, const ParallelState& place,
              const ShardOptions& options = {}) {
  return held_ranges(Dims::parse(dims), {size}, place, options).at(0);
}

TEST(HeldRangesTest, NaturalOrderIsOneRange) {
  EXPECT_THAT(ranges("h[tp]", 12, ParallelState().set("tp", 0, 3)), ElementsAre(IndexRange{0, 4}));
  EXPECT_THAT(ranges("h[tp]", 12, ParallelState().set("tp", 2, 3)), ElementsAre(IndexRange{8, 12}));
  EXPECT_THAT(ranges("h", 12, ParallelState().set("tp", 2, 3)), ElementsAre(IndexRange{0, 12}));
}

TEST(HeldRangesTest, AnAxisThatIsNotKnownOrOfSizeOneDoesNothing) {
  EXPECT_THAT(ranges("h[tp]", 5, ParallelState()), ElementsAre(IndexRange{0, 5}));
  EXPECT_THAT(ranges("h[tp]", 5, ParallelState().set("tp", 0, 1)), ElementsAre(IndexRange{0, 5}));
  EXPECT_THAT(ranges("h[tp:zigzag]", 5, ParallelState()), ElementsAre(IndexRange{0, 5}));
}

TEST(HeldRangesTest, ZigzagTakesOnePieceFromEachEnd) {
  EXPECT_THAT(ranges("s[cp:zigzag]", 8, ParallelState().set("cp", 0, 2)),
              ElementsAre(IndexRange{0, 2}, IndexRange{6, 8}));
  EXPECT_THAT(ranges("s[cp:zigzag]", 8, ParallelState().set("cp", 1, 2)), ElementsAre(IndexRange{2, 6}));
  EXPECT_THAT(ranges("s[cp:zigzag]", 12, ParallelState().set("cp", 1, 3)),
              ElementsAre(IndexRange{2, 4}, IndexRange{8, 10}));
}

TEST(HeldRangesTest, TheFirstAxisSplitsMostCoarsely) {
  const auto place = [](int cp, int sp) { return ParallelState().set("sp", sp, 2).set("cp", cp, 2); };
  EXPECT_THAT(ranges("s[cp,sp]", 8, place(0, 1)), ElementsAre(IndexRange{2, 4}));
  EXPECT_THAT(ranges("s[sp,cp]", 8, place(0, 1)), ElementsAre(IndexRange{4, 6}));
  EXPECT_THAT(ranges("s[cp:zigzag,sp]", 16, place(0, 0)), ElementsAre(IndexRange{0, 4}));
  EXPECT_THAT(ranges("s[cp:zigzag,sp]", 16, place(0, 1)), ElementsAre(IndexRange{12, 16}));
  EXPECT_THAT(ranges("s[sp,cp:zigzag]", 16, place(0, 1)), ElementsAre(IndexRange{8, 10}, IndexRange{14, 16}));
}

TEST(HeldRangesTest, ASummandIsOfTheWhole) {
  EXPECT_THAT(ranges("h[tp:partial]", 5, ParallelState().set("tp", 1, 3)), ElementsAre(IndexRange{0, 5}));
}

TEST(HeldRangesTest, PackedSequencesAreSplitOneByOne) {
  const ShardOptions options{{4, 8}};
  const auto cp = [](int rank) { return ParallelState().set("cp", rank, 2); };
  EXPECT_THAT(ranges("t[cp]", 12, cp(0), options), ElementsAre(IndexRange{0, 2}, IndexRange{4, 8}));
  EXPECT_THAT(ranges("t[cp:zigzag]", 14, cp(0), options),
              ElementsAre(IndexRange{0, 1}, IndexRange{3, 6}, IndexRange{10, 13}));
  EXPECT_THAT(ranges("t[cp:zigzag]", 14, cp(1), options),
              ElementsAre(IndexRange{1, 3}, IndexRange{6, 10}, IndexRange{13, 14}));
  // Other axes know nothing of sequences.
  EXPECT_THAT(ranges("t[tp]", 12, ParallelState().set("tp", 1, 2), options), ElementsAre(IndexRange{6, 12}));
}

TEST(HeldRangesTest, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const auto error = [](const std::string& dims, std::int64_t size, const ParallelState& place,
                        const ShardOptions& options) -> std::string {
    try {
      ranges(dims, size, place, options);
    } catch (const ConfigError& refused) {
      return refused.what();
    }
    return "(no error)";
  };
  const ParallelState tp = ParallelState().set("tp", 0, 3);
  const ParallelState cp = ParallelState().set("cp", 0, 2);
  EXPECT_THAT(error("h[tp]", 10, tp, {}), HasSubstr("dimension h: 10 indices can't be divided evenly into 3 pieces"));
  EXPECT_THAT(error("s[cp:zigzag]", 6, cp, {}),
              HasSubstr("6 indices can't be divided evenly into 4 pieces (cp of size 2"));
  EXPECT_THAT(error("h[cp:zigzag]", 8, cp, {}), HasSubstr("dimension h: zigzag"));
  EXPECT_THAT(error("t[cp:zigzag]", 8, cp, {}), HasSubstr("dimension t: zigzag"));
  EXPECT_THAT(error("t[cp:zigzag]", 8, cp, {{4, 3}}), HasSubstr("3 indices"));
  EXPECT_THAT(error("t[cp]", 8, cp, {{4, 8}}), HasSubstr("sequence lengths [4, 8] do not fit a dimension t of 8"));
  EXPECT_THAT(error("t[cp]", 8, cp, {{-4, 8}}), HasSubstr("sequence lengths [-4, 8]"));
  EXPECT_THAT(error("t[tp,cp]", 12, ParallelState(tp).set("cp", 0, 2), {{4, 8}}), HasSubstr("first axis"));
  EXPECT_THAT(error("b h", 8, cp, {}), HasSubstr("1 dimensions (shape [8]), and dims names 2"));
  EXPECT_THAT(error("1", 8, cp, {}), HasSubstr("is `1` in dims and 8"));
}

TEST(UnshardTest, ShardsComeInAnyOrder) {
  const Dims dims = Dims::parse("b s[cp:zigzag] h[tp]");
  const at::Tensor full = at::arange(2 * 8 * 6).view({2, 8, 6});
  std::vector<Shard> shards = all_shards(dims, full, {{"cp", 2}, {"tp", 3}});
  std::mt19937 random(1);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(shards.begin(), shards.end(), random);
    EXPECT_TRUE(at::equal(unshard(dims, shards).tensor, full));
  }
}

TEST(UnshardTest, SummandsAddUp) {
  const Dims dims = Dims::parse("b h[tp:partial]");
  std::vector<Shard> shards;
  for (int rank = 0; rank < 3; ++rank) {
    shards.push_back({at::full({2, 4}, rank + 1.5), ParallelState().set("tp", rank, 3), rank});
  }
  EXPECT_TRUE(at::equal(unshard(dims, shards).tensor, at::full({2, 4}, 7.5)));
}

TEST(UnshardTest, SmallSummandsAreNotLostToTheDtype) {
  // In bfloat16 256 + 1 is 256, each time; the sum of all is 260.
  std::vector<Shard> shards;
  for (int rank = 0; rank < 5; ++rank) {
    shards.push_back({at::full({1}, rank == 0 ? 256 : 1, at::kBFloat16), ParallelState().set("tp", rank, 5), rank});
  }
  EXPECT_EQ(unshard(Dims::parse("h[tp:partial]"), shards).tensor.item<float>(), 260);
}

TEST(UnshardTest, EqualReplicasGiveOne) {
  const at::Tensor full = at::randn({3, 4});
  const Dims dims = Dims::parse("b h # tp:replicated");
  const Unsharded result = unshard(dims, all_shards(dims, full, {{"tp", 3}}));
  EXPECT_TRUE(at::equal(result.tensor, full));
  EXPECT_TRUE(result.replica_differences.empty());
}

TEST(UnshardTest, TheOddReplicaIsNamedAndNotUsed) {
  const Dims dims = Dims::parse("b h # tp:replicated");
  const at::Tensor full = at::randn({3, 4});
  for (int odd = 0; odd < 3; ++odd) {
    std::vector<Shard> shards = all_shards(dims, full, {{"tp", 3}});
    for (Shard& shard : shards) shard.rank += 10;
    auto& one = shards[static_cast<std::size_t>(odd)].tensor;
    one = one.clone();
    one[1][2] += 5;
    const Unsharded result = unshard(dims, shards);
    EXPECT_TRUE(at::equal(result.tensor, full));
    ASSERT_EQ(result.replica_differences.size(), 1U);
    const ReplicaDifference& difference = result.replica_differences[0];
    EXPECT_EQ(difference.axis, "tp");
    EXPECT_EQ(difference.odd_rank, odd + 10);
    EXPECT_EQ(difference.reference_rank, odd == 0 ? 11 : 10);
    EXPECT_THAT(difference.difference.max_at, ElementsAre(1, 2));
  }
}

TEST(UnshardTest, OfTwoReplicasTheFirstIsUsed) {
  const Dims dims = Dims::parse("h # tp:replicated");
  const Unsharded result = unshard(dims, {{at::ones({2}), ParallelState().set("tp", 1, 2), 1},
                                          {at::zeros({2}), ParallelState().set("tp", 0, 2), 0}});
  EXPECT_TRUE(at::equal(result.tensor, at::zeros({2})));
  ASSERT_EQ(result.replica_differences.size(), 1U);
  EXPECT_EQ(result.replica_differences[0].odd_rank, 1);
}

TEST(UnshardTest, ReplicasOfShardsAreComparedWithinTheirShard) {
  const Dims dims = Dims::parse("b h[tp] # cp:replicated");
  const at::Tensor full = at::randn({2, 6});
  std::vector<Shard> shards = all_shards(dims, full, {{"cp", 2}, {"tp", 3}});
  EXPECT_TRUE(at::equal(unshard(dims, shards).tensor, full));
  shards[4].tensor = shards[4].tensor + 1;  // cp 1, tp 1
  const Unsharded result = unshard(dims, shards);
  EXPECT_TRUE(at::equal(result.tensor, full));
  ASSERT_EQ(result.replica_differences.size(), 1U);
  EXPECT_EQ(result.replica_differences[0].reference_rank, 1);
  EXPECT_EQ(result.replica_differences[0].odd_rank, 4);
}

TEST(UnshardTest, RecomputationIsReplicatedWithoutBeingSaid) {
  const Dims dims = Dims::parse("h[tp]");
  const at::Tensor full = at::arange(4);
  EXPECT_TRUE(at::equal(unshard(dims, all_shards(dims, full, {{"tp", 2}, {"recompute_pseudo", 2}})).tensor, full));
}

TEST(UnshardTest, AnIdleDataParallelRankIsLeftOut) {
  const at::Tensor full = at::arange(4);
  for (const auto& [text, axis] : {std::pair("h[tp]", "dp"), std::pair("h[tp] # dp:=attn_dp", "attn_dp")}) {
    const Dims dims = Dims::parse(text);
    std::vector<Shard> shards;
    for (int dp = 0; dp < 2; ++dp) {
      for (int tp = 0; tp < 2; ++tp) {
        const ParallelState place = ParallelState().set(axis, dp, 2).set("tp", tp, 2);
        shards.push_back({dp == 0 ? at::empty({0}, at::kLong) : shard_of(dims, full, place), place, dp * 2 + tp});
      }
    }
    EXPECT_TRUE(at::equal(unshard(dims, shards).tensor, full)) << text;
  }
  // All idle: an empty tensor is what there is.
  EXPECT_EQ(unshard(Dims::parse("h"), {{at::empty({0}), {}, 0}}).tensor.numel(), 0);
}

TEST(UnshardTest, AnAxisThatFollowsFromOthersNeedsNoWord) {
  // attn_tp is tp under another name, edp the combination of both.
  const Dims dims = Dims::parse("s[cp] h[tp]");
  const at::Tensor full = at::arange(16).view({4, 4});
  std::vector<Shard> shards = all_shards(dims, full, {{"cp", 2}, {"tp", 2}});
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].place.set("attn_tp", static_cast<int>(i % 2), 2).set("edp", static_cast<int>(i), 4);
  }
  EXPECT_TRUE(at::equal(unshard(dims, shards).tensor, full));
}

TEST(UnshardTest, OneShardWithoutAxesIsTheWhole) {
  const at::Tensor full = at::randn({2, 3});
  EXPECT_TRUE(unshard(Dims::parse("b h[tp]"), {{full, ParallelState(), 0}}).tensor.is_same(full));
}

TEST(UnshardTest, LeavesAutogradAndTheShardsAlone) {
  const Dims dims = Dims::parse("b h[tp]");
  const at::Tensor weight = at::ones({2, 4}).requires_grad_();
  const std::vector<Shard> shards = all_shards(dims, weight * 2, {{"tp", 2}});
  const at::Tensor whole = unshard(dims, shards).tensor;
  EXPECT_FALSE(whole.requires_grad());
  whole.add_(1);
  EXPECT_TRUE(at::equal(shards[0].tensor, at::full({2, 2}, 2.0)));
}

TEST(UnshardTest, WhatDoesNotFitIsRefusedWithRanksAndNumbers) {
  const auto tp = [](int rank, int size = 2) { return ParallelState().set("tp", rank, size); };
  const at::Tensor two = at::ones({2});
  EXPECT_THAT(error_of("h[tp]", {}), HasSubstr("no shards"));
  EXPECT_THAT(error_of("h[tp]", {{at::Tensor(), tp(0), 0}}), HasSubstr("rank 0: the tensor is undefined"));
  EXPECT_THAT(error_of("h[tp]", {{two, tp(0), 4}}), HasSubstr("no rank holds tp 1 of 2: 1 ranks are here"));
  EXPECT_THAT(error_of("h[tp]", {{two, tp(0), 4}, {two, tp(0), 7}}), HasSubstr("ranks 4 and 7 both hold tp 0 of 2"));
  EXPECT_THAT(error_of("h[tp]", {{two, tp(0), 4}, {two, tp(1, 3), 7}}),
              HasSubstr("axis tp: its size is 2 on rank 4 and 3 on rank 7"));
  EXPECT_THAT(error_of("h[tp]", {{two, tp(0), 4}, {two, ParallelState(), 7}}),
              HasSubstr("axis tp: its size is 2 on rank 4 and 1 on rank 7"));
  EXPECT_THAT(error_of("h", {{two, tp(0), 4}, {two, tp(1), 7}}),
              HasSubstr("ranks 4 and 7 both hold the whole tensor: they differ in tp, of which dims says nothing"));
  EXPECT_THAT(error_of("h[tp]", {{two, tp(0), 4}, {at::ones({3}), tp(1), 7}}),
              HasSubstr("ranks 4 and 7 hold shapes [2] and [3]"));
  EXPECT_THAT(error_of("h[tp]", {{two, tp(0), 4}, {two.to(at::kDouble), tp(1), 7}}),
              HasSubstr("ranks 4 and 7 hold dtypes float32 and float64"));
  EXPECT_THAT(error_of("b h[tp]", {{two, tp(0), 4}, {two, tp(1), 7}}),
              HasSubstr("rank 4: 1 dimensions (shape [2]), and dims names 2"));
  const auto cp = [](int rank) { return ParallelState().set("cp", rank, 2); };
  EXPECT_THAT(error_of("s[cp:zigzag]", {{at::ones({3}), cp(0), 0}, {at::ones({3}), cp(1), 1}}),
              HasSubstr("6 indices can't be divided evenly into 4 pieces"));
  const ParallelState both_dp = tp(0).set("dp", 0, 2);
  EXPECT_THAT(error_of("h[tp]", {{two, both_dp, 0},
                                 {two, tp(1).set("dp", 0, 2), 1},
                                 {two, tp(0).set("dp", 1, 2), 2},
                                 {two, tp(1).set("dp", 1, 2), 3}}),
              HasSubstr("ranks 0 and 2 both hold tp 0 of 2: they differ in dp"));
}

class EveryDtypeTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(EveryDtypeTest, ComesBackAsItWas) {
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(GetParam()));
  at::manual_seed(9);
  // Any bits will do but a bool's, and none that is NaN where the sum is taken.
  at::Tensor full = at::randint(0, 2, {4, 8, 6 * bytes}, at::kByte).view(GetParam());
  for (const char* text : {"b s[cp:zigzag] h[tp]", "b s[cp] h # tp:replicated", "b[tp] s[cp:partial] h"}) {
    const Dims dims = Dims::parse(text);
    const Unsharded result = unshard(dims, all_shards(dims, full, {{"cp", 2}, {"tp", 2}}));
    EXPECT_TRUE(diff(result.tensor, full).same_bits) << text << ": " << to_text(diff(result.tensor, full));
    EXPECT_TRUE(result.replica_differences.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryDtypeTest,
                         testing::Values(at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16,
                                         at::kUInt32, at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                         at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2,
                                         at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz),
                         [](const auto& test) { return std::string(c10::getDtypeNames(test.param).first); });

// Random dims, sizes and axes: what is taken apart comes together.
TEST(ShardPropertyTest, UnshardUndoesShardOf) {
  std::mt19937 random(20240611);
  const auto pick = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int with_zigzag = 0;
  int with_replicas = 0;
  int with_sums = 0;
  int with_packing = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<std::string> axes = {"tp", "cp", "ep", "sp", "etp", "moe_ep", "attn_tp"};
    std::shuffle(axes.begin(), axes.end(), random);
    Sizes sizes;
    int ranks = 1;
    std::string text;
    std::vector<std::int64_t> shape;
    ShardOptions options;
    const auto next_axis = [&](int most) {
      const std::string axis = axes.back();
      axes.pop_back();
      const int size = pick(1, std::min(most, 48 / ranks));
      ranks *= size;
      if (size > 1 || pick(0, 1) == 1) sizes.emplace_back(axis, size);
      return std::pair(axis, size);
    };
    std::vector<std::string> names = {"s", "b", "(x*y)", "1", "h"};
    std::shuffle(names.begin(), names.end(), random);
    names.resize(static_cast<std::size_t>(pick(1, 4)));
    for (const std::string& name : names) {
      std::string brackets;
      std::int64_t size = name == "1" ? 1 : pick(0, 3);
      bool is_packed = false;
      if (name != "1") {
        const auto context = std::find(axes.begin(), axes.end(), "cp");
        if (name == "s" && context != axes.end()) std::iter_swap(context, axes.end() - 1);  // its usual axis
        for (int more = pick(0, 2); more > 0 && axes.size() > 2; --more) {
          const auto [axis, axis_size] = next_axis(4);
          std::string how = axis;
          if (name == "s" && !is_packed && pick(0, 2) == 0) {
            if (brackets.empty() && axis == "cp" && pick(0, 1) == 0) {
              is_packed = axis_size > 1;
            }
            how += ":zigzag";
            size *= 2L * axis_size;
            ++with_zigzag;
          } else if (pick(0, 5) == 0) {
            how += ":partial";
            with_sums += axis_size > 1;
          } else {
            size *= axis_size;
          }
          brackets += (brackets.empty() ? "" : ",") + how;
        }
      }
      std::string shown = name;
      if (is_packed && !brackets.empty()) {
        // Several sequences of this size and padding of cp pieces, in place of one.
        shown = "t";
        const int sequences = pick(1, 3);
        options.sequence_lengths.assign(static_cast<std::size_t>(sequences), size);
        size = size * sequences + (brackets == "cp:zigzag" ? pick(0, 1) * sizes.back().second : 0);
        ++with_packing;
      }
      text += (text.empty() ? "" : " ") + shown + (brackets.empty() ? "" : "[" + brackets + "]");
      shape.push_back(size);
    }
    if (pick(0, 2) == 0) {
      const auto [axis, size] = next_axis(3);
      text += " # " + axis + ":replicated";
      with_replicas += size > 1;
    }
    std::shuffle(sizes.begin(), sizes.end(), random);
    SCOPED_TRACE(formatted("round {}: {}", round, text));
    const Dims dims = Dims::parse(text);
    const at::Tensor full = at::randint(-100, 100, shape, at::kInt);
    std::vector<Shard> shards = all_shards(dims, full, sizes, options);
    std::shuffle(shards.begin(), shards.end(), random);
    const Unsharded result = unshard(dims, shards, options);
    ASSERT_TRUE(at::equal(result.tensor, full));
    ASSERT_TRUE(result.replica_differences.empty());
  }
  // The rounds would prove little without these.
  EXPECT_GT(with_zigzag, 50);
  EXPECT_GT(with_replicas, 50);
  EXPECT_GT(with_sums, 30);
  EXPECT_GT(with_packing, 15);
}

}  // namespace
}  // namespace dbg
