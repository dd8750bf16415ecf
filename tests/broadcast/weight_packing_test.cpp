// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Packing without a wire: buckets are what the plan says, digests are theirs, lent memory is the weight's own.
#include "broadcast/weight_packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "broadcast/syncing.h"
#include "broadcast/weight_assembly.h"

namespace dbg::broadcast {
namespace {

using testing::HasSubstr;

struct Packed {
  std::vector<BucketItem> items;
  int acquired = 0;
};

void pack(Packed& packed, const std::vector<NamedParameter>& weights, const CutRules& rules, bool has_bytes,
          bool is_stable, Integrity integrity = Integrity::weight) {
  PackingOutput output;
  output.acquire = [&] {
    ++packed.acquired;
    return at::full({static_cast<std::int64_t>(rules.bucket_bytes)}, 0xee, at::kByte);
  };
  output.push = [&](BucketItem item) { packed.items.push_back(std::move(item)); };
  WeightPacking packing(rules, integrity, has_bytes, is_stable, output);
  packing.set_sync(5, 8);
  for (const NamedParameter& weight : weights) packing.add(info_of({weight.name, weight.tensor}), weight.tensor);
  packing.finish();
}

TEST(WeightPackingTest, BucketsAreThoseOfThePlanOnRootAndRelay) {
  const CutRules rules{4096, 256};
  const auto weights = test::sample_weights(3);
  std::vector<WeightInfo> infos;
  for (const NamedParameter& weight : weights) infos.push_back(info_of({weight.name, weight.tensor}));
  const BucketPlan plan = plan_buckets(infos, rules);
  for (const bool has_bytes : {true, false}) {
    Packed packed;
    pack(packed, weights, rules, has_bytes, false);
    ASSERT_EQ(packed.items.size(), plan.buckets.size() + 1);
    std::uint64_t weights_seen = 0;
    for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
      const Header& header = packed.items[i].message.header;
      EXPECT_EQ(header.kind, MessageKind::bucket);
      EXPECT_EQ(header.bucket, i);
      EXPECT_EQ(header.length, plan.buckets[i].length);
      EXPECT_EQ(header.plan_hash, plan.buckets[i].plan_hash);
      EXPECT_EQ(header.first_weight, weights_seen);
      EXPECT_EQ(header.generation, 5U);
      EXPECT_EQ(header.model_version, 8);
      weights_seen += header.num_weights;
      EXPECT_EQ(packed.items[i].memory.defined(), has_bytes);
      if (has_bytes) {
        EXPECT_EQ(header.payload_digest, digest_of(packed.items[i].memory.const_data_ptr(), header.length));
      }
    }
    const Header& commit = packed.items.back().message.header;
    EXPECT_EQ(commit.kind, MessageKind::commit);
    EXPECT_TRUE(commit.is_last);
    EXPECT_EQ(commit.num_weights, weights.size());
    EXPECT_EQ(commit.total_bytes, plan.total_bytes);
    EXPECT_EQ(packed.acquired, has_bytes ? static_cast<int>(plan.buckets.size()) : 0);
  }
}

TEST(WeightPackingTest, WhatAlignmentLeavesIsZero) {
  Packed packed;
  pack(packed, {{"a", at::ones({3}, at::kByte)}, {"b", at::ones({3}, at::kByte)}}, {1024, 256}, true, false);
  const auto* bytes = static_cast<const std::uint8_t*>(packed.items[0].memory.const_data_ptr());
  ASSERT_EQ(packed.items[0].message.header.length, 259U);
  for (int i = 3; i < 256; ++i) ASSERT_EQ(bytes[i], 0) << i;
}

TEST(WeightPackingTest, StableWeightsThatFillABucketAreSentFromWhereTheyLie) {
  const at::Tensor large = at::arange(3 * 256, at::kFloat);  // three buckets of 1 KiB
  for (const bool is_stable : {true, false}) {
    Packed packed;
    pack(packed, {{"large", large}}, {1024, 256}, true, is_stable);
    ASSERT_EQ(packed.items.size(), 4U);
    for (std::size_t i = 0; i < 3; ++i) {
      const auto* lies_at = static_cast<const std::uint8_t*>(large.const_data_ptr()) + 1024 * i;
      EXPECT_EQ(packed.items[i].memory.const_data_ptr() == lies_at, is_stable);
      EXPECT_TRUE(packed.items[i].slot.defined());  // it still counts as one bucket in flight
      EXPECT_EQ(std::memcmp(packed.items[i].memory.const_data_ptr(), lies_at, 1024), 0);
    }
  }
}

TEST(WeightPackingTest, WhatCantBeSentIsNamed) {
  const auto refusal = [](const at::Tensor& tensor) -> std::string {
    try {
      info_of({"w", tensor});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({}), HasSubstr("'w' is an undefined tensor"));
  EXPECT_THAT(refusal(at::eye(2).to_sparse()), HasSubstr("'w'"));
  EXPECT_THAT(refusal(at::eye(2).to_sparse_csr()), HasSubstr("'w'"));
  EXPECT_THAT(refusal(at::empty({1}, at::TensorOptions().device(at::kMeta))), HasSubstr("'w'"));
  EXPECT_EQ(refusal(at::ones({2}).expand({3, 2})), "accepted");
}

}  // namespace
}  // namespace dbg::broadcast
