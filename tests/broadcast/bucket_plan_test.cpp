// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where buckets end: at the boundary, one past it, across many, without elements; and that every role cuts alike.
#include "broadcast/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

using testing::HasSubstr;

WeightInfo bytes(const std::string& name, std::int64_t size) {
  return {name, {size}, at::kByte};
}

std::vector<std::uint64_t> lengths(const BucketPlan& plan) {
  std::vector<std::uint64_t> all;
  for (const PlannedBucket& bucket : plan.buckets) all.push_back(bucket.length);
  return all;
}

// Every byte of every weight is in exactly one piece, in order; pieces of a bucket do not overlap, begin aligned when
// they begin a weight, and stay inside the bucket.
void expect_sound(const BucketPlan& plan, const std::vector<WeightInfo>& weights, const CutRules& rules) {
  std::vector<std::uint64_t> done(weights.size(), 0);
  std::vector<int> times_begun(weights.size(), 0);
  std::vector<int> times_ended(weights.size(), 0);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    std::uint64_t end = 0;
    for (const Piece& piece : plan.buckets[b].pieces) {
      ASSERT_EQ(piece.bucket, b);
      ASSERT_EQ(piece.offset_in_weight, done.at(piece.weight));
      ASSERT_GE(piece.offset_in_bucket, end);
      ASSERT_LT(piece.offset_in_bucket - end, std::max<std::uint64_t>(rules.alignment, 1));
      if (piece.begins_weight && piece.size > 0) {
        ASSERT_EQ(piece.offset_in_bucket % std::min(rules.alignment, rules.bucket_bytes), 0U);
      }
      end = piece.offset_in_bucket + piece.size;
      ASSERT_LE(end, rules.bucket_bytes);
      done[piece.weight] += piece.size;
      times_begun[piece.weight] += piece.begins_weight ? 1 : 0;
      times_ended[piece.weight] += piece.ends_weight ? 1 : 0;
    }
    ASSERT_EQ(end, plan.buckets[b].length);
  }
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_EQ(done[i], size_bytes_of(weights[i])) << weights[i].name;
    ASSERT_EQ(times_begun[i], 1) << weights[i].name;
    ASSERT_EQ(times_ended[i], 1) << weights[i].name;
    total += done[i];
  }
  ASSERT_EQ(plan.total_bytes, total);
}

TEST(BucketPlanTest, ExactBoundaryAndOnePast) {
  const CutRules rules{1024, 256};
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 1024)}, rules)), (std::vector<std::uint64_t>{1024}));
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 1025)}, rules)), (std::vector<std::uint64_t>{1024, 1}));
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 1023)}, rules)), (std::vector<std::uint64_t>{1023}));
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 512), bytes("b", 512)}, rules)), (std::vector<std::uint64_t>{1024}));
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 512), bytes("b", 513)}, rules)), (std::vector<std::uint64_t>{1024, 1}));
  // Nothing can begin behind 769 bytes, so the bucket is full there.
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 769), bytes("b", 1)}, rules)), (std::vector<std::uint64_t>{769, 1}));
  EXPECT_EQ(lengths(plan_buckets({bytes("a", 768), bytes("b", 1)}, rules)), (std::vector<std::uint64_t>{769}));
}

TEST(BucketPlanTest, ATailIsPackedWithWhatFollows) {
  const BucketPlan plan = plan_buckets({bytes("long", 3 * 1024 + 10), bytes("next", 100)}, {1024, 256});
  EXPECT_EQ(lengths(plan), (std::vector<std::uint64_t>{1024, 1024, 1024, 356}));
  const std::vector<Piece>& last = plan.buckets[3].pieces;
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].offset_in_weight, 3072U);
  EXPECT_EQ(last[0].size, 10U);
  EXPECT_EQ(last[1].offset_in_bucket, 256U);
}

TEST(BucketPlanTest, OddSizesStayAligned) {
  const std::vector<WeightInfo> weights{{"flags", {3}, at::kBool}, {"values", {5}, at::kFloat}};
  const BucketPlan plan = plan_buckets(weights, {4096, 256});
  ASSERT_EQ(plan.buckets.size(), 1U);
  EXPECT_EQ(plan.buckets[0].pieces[1].offset_in_bucket, 256U);
  EXPECT_EQ(plan.buckets[0].length, 276U);
}

TEST(BucketPlanTest, WeightsOfNoElementsAndOfNoDimensionAreThere) {
  const std::vector<WeightInfo> weights{
      {"none", {0, 7}, at::kFloat}, {"scalar", {}, at::kDouble}, {"none at all", {2, 0}, at::kHalf}};
  const BucketPlan plan = plan_buckets(weights, {64, 256});
  ASSERT_EQ(plan.buckets.size(), 2U);
  EXPECT_EQ(plan.buckets[0].length, 8U);  // the scalar: nothing can begin behind it in 64 bytes
  EXPECT_EQ(plan.buckets[1].length, 0U);
  EXPECT_EQ(plan.buckets[1].pieces.size(), 1U);
  expect_sound(plan, weights, {64, 256});
  EXPECT_TRUE(plan_buckets({}, {64, 256}).buckets.empty());
}

TEST(BucketPlanTest, EveryDtypeHasItsBytes) {
  const std::vector<std::pair<at::ScalarType, std::uint64_t>> sizes{
      {at::kByte, 1},        {at::kChar, 1},          {at::kShort, 2},        {at::kInt, 4},
      {at::kLong, 8},        {at::kHalf, 2},          {at::kFloat, 4},        {at::kDouble, 8},
      {at::kBFloat16, 2},    {at::kBool, 1},          {at::kComplexFloat, 8}, {at::kComplexDouble, 16},
      {at::kComplexHalf, 4}, {at::kFloat8_e4m3fn, 1}, {at::kFloat8_e5m2, 1},  {at::kUInt16, 2},
      {at::kUInt32, 4},      {at::kUInt64, 8}};
  for (const auto& [dtype, size] : sizes) EXPECT_EQ(size_bytes_of({"w", {3, 5}, dtype}), 15 * size) << dtype;
}

TEST(BucketPlanTest, WhatCantBeCutIsRefusedByName) {
  const auto refusal = [](const WeightInfo& weight) -> std::string {
    try {
      size_bytes_of(weight);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({"w", {2}, at::kQInt8}), HasSubstr("'w'"));
  EXPECT_THAT(refusal({"w", {2}, at::ScalarType::Undefined}), HasSubstr("'w'"));
  EXPECT_THAT(refusal({"w", {-1}, at::kFloat}), HasSubstr("negative"));
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_THAT(refusal({"w", {large, large}, at::kFloat}), HasSubstr("63 bits"));
  EXPECT_EQ(refusal({"w", {large, large, 0}, at::kFloat}), "accepted");
  EXPECT_EQ(size_bytes_of({"w", {large}, at::kDouble}), std::uint64_t{1} << 43);
  EXPECT_THROW(BucketCutter({63, 256}), ConfigError);
  EXPECT_THROW(BucketCutter({1024, 0}), ConfigError);
}

TEST(BucketPlanTest, ANameThatComesTwiceIsRefusedAndChangesNothing) {
  BucketCutter cutter({1024, 256});
  cutter.add(bytes("a", 10));
  const std::uint64_t before = cutter.plan_hash();
  try {
    cutter.add(bytes("a", 20));
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'a' is there twice, as number 0 and as number 1"));
  }
  EXPECT_EQ(cutter.plan_hash(), before);
  EXPECT_EQ(cutter.num_weights(), 1U);
}

TEST(BucketPlanTest, TheHashKnowsNameDtypeShapeOrderAndCut) {
  const CutRules rules{1024, 256};
  const std::vector<WeightInfo> base{{"a", {2, 3}, at::kFloat}, {"b", {6}, at::kFloat}};
  const std::uint64_t hash = plan_buckets(base, rules).plan_hash;
  const std::vector<std::vector<WeightInfo>> others{{{"aa", {2, 3}, at::kFloat}, {"b", {6}, at::kFloat}},
                                                    {{"a", {3, 2}, at::kFloat}, {"b", {6}, at::kFloat}},
                                                    {{"a", {2, 3}, at::kInt}, {"b", {6}, at::kFloat}},
                                                    {{"b", {6}, at::kFloat}, {"a", {2, 3}, at::kFloat}},
                                                    {{"a", {2, 3}, at::kFloat}},
                                                    {{"a", {2, 3, 1}, at::kFloat}, {"b", {6}, at::kFloat}}};
  for (const auto& other : others) EXPECT_NE(plan_buckets(other, rules).plan_hash, hash) << text_of(other[0]);
  EXPECT_NE(plan_buckets(base, {2048, 256}).plan_hash, hash);
  EXPECT_NE(plan_buckets(base, {1024, 128}).plan_hash, hash);
  EXPECT_EQ(plan_buckets(base, rules).plan_hash, hash);
  // Pinned: ranks of two builds have to agree.
  RollingHash pinned;
  pinned.add(std::string_view("dbg"));
  EXPECT_EQ(pinned.value(), 0x95bdf5d23908a611ULL);
}

TEST(BucketPlanTest, AnyWeightsAnyBucket) {
  std::mt19937_64 random(20240731);
  const std::vector<at::ScalarType> dtypes{at::kBool, at::kHalf, at::kFloat, at::kDouble, at::kComplexDouble};
  for (int round = 0; round < 200; ++round) {
    const CutRules rules{64 + random() % 5000, std::uint64_t{1} << (random() % 10)};
    std::vector<WeightInfo> weights;
    const std::size_t count = random() % 30;
    for (std::size_t i = 0; i < count; ++i) {
      weights.push_back({formatted("w{}", i),
                         {static_cast<std::int64_t>(random() % 40), static_cast<std::int64_t>(random() % 60)},
                         dtypes[random() % dtypes.size()]});
    }
    const BucketPlan plan = plan_buckets(weights, rules);
    expect_sound(plan, weights, rules);
    // A cutter that is fed weight by weight says the same, and says it as soon as a bucket is full.
    BucketCutter cutter(rules);
    for (const WeightInfo& weight : weights) {
      for (const Piece& piece : cutter.add(weight)) {
        if (piece.ends_bucket) {
          ASSERT_EQ(piece.plan_hash, plan.buckets.at(piece.bucket).plan_hash);
        }
      }
    }
    ASSERT_EQ(cutter.plan_hash(), plan.plan_hash);
  }
}

TEST(BucketPlanTest, SizesBeyond32BitsCount) {
  const WeightInfo large{"large", {std::int64_t{3} << 30}, at::kFloat};
  const BucketPlan plan = plan_buckets({large, bytes("b", 1)}, {std::uint64_t{1} << 33, 256});
  EXPECT_EQ(lengths(plan), (std::vector<std::uint64_t>{std::uint64_t{1} << 33, (std::uint64_t{1} << 32) + 1}));
}

TEST(BucketPlanTest, TheFirstDifferenceHasBothSides) {
  const std::vector<WeightInfo> a{{"x", {1}, at::kFloat}, {"y", {2}, at::kFloat}};
  std::vector<WeightInfo> b = a;
  EXPECT_FALSE(first_difference(a, "root", b, "relay"));
  b.pop_back();
  EXPECT_FALSE(first_difference(a, "root", b, "relay"));  // one begins with the other
  b = a;
  b[1].shape = {3};
  EXPECT_EQ(first_difference(a, "root", b, "relay", 7),
            "weight 8 is 'y' (float32 [2]) on root and 'y' (float32 [3]) on relay");
  EXPECT_NE(manifest_hash(a), manifest_hash(b));
}

}  // namespace
}  // namespace dbg::broadcast
