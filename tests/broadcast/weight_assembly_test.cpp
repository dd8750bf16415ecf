// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Assembly without a wire: what was packed comes out; what is damaged, missing or out of order does not.
#include "broadcast/weight_assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fence.h"
#include "broadcast/sync_run.h"
#include "broadcast/syncing.h"
#include "broadcast/weight_packing.h"

namespace dbg::broadcast {
namespace {

using testing::HasSubstr;

std::vector<BucketItem> packed(const std::vector<NamedParameter>& weights, const CutRules& rules, Integrity integrity) {
  std::vector<BucketItem> items;
  PackingOutput output;
  output.acquire = [&] { return at::empty({static_cast<std::int64_t>(rules.bucket_bytes)}, at::kByte); };
  output.push = [&](BucketItem item) { items.push_back(std::move(item)); };
  WeightPacking packing(rules, integrity, true, false, output);
  for (const NamedParameter& weight : weights) packing.add(info_of({weight.name, weight.tensor}), weight.tensor);
  packing.finish();
  return items;
}

// Runs all items through an assembly; the text of what it threw, or "".
std::string assembled(const std::vector<BucketItem>& items, const CutRules& rules, Integrity integrity,
                      WeightSink& sink) {
  WeightAssembly assembly(rules, integrity, sink);
  try {
    for (const BucketItem& item : items) {
      if (item.message.header.kind == MessageKind::commit) {
        assembly.finish(item.message.header);
      } else {
        assembly.take(item.message, item.memory);
      }
    }
  } catch (const ForeignFailure& failure) {
    return failure.text;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(WeightAssemblyTest, WhatWasPackedComesOut) {
  for (const std::uint64_t bucket : {64U, 100U, 1000U, 4096U, 1000000U}) {
    for (const Integrity integrity : {Integrity::none, Integrity::bucket, Integrity::weight}) {
      const CutRules rules{bucket, 256};
      const auto weights = test::sample_weights(4);
      TensorMapSink sink;
      EXPECT_EQ(assembled(packed(weights, rules, integrity), rules, integrity, sink), "");
      sink.commit(1);
      test::expect_version(sink, weights);
    }
  }
}

// Counts who was handed what how.
class CountingSink : public TensorMapSink {
 public:
  void take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) override {
    (is_view ? views : owned) += 1;
    TensorMapSink::take(weight, tensor, is_view);
  }
  int views = 0;
  int owned = 0;
};

TEST(WeightAssemblyTest, SmallOnesAreViewsLargeOnesAreTheSinksOwn) {
  const CutRules rules{1024, 256};
  CountingSink sink;
  const std::vector<NamedParameter> weights{
      {"small", at::ones({4})}, {"large", at::ones({1000})}, {"none", at::ones({0})}};
  EXPECT_EQ(assembled(packed(weights, rules, Integrity::bucket), rules, Integrity::bucket, sink), "");
  EXPECT_EQ(sink.views, 1);
  EXPECT_EQ(sink.owned, 2);
}

TEST(WeightAssemblyTest, DamageAnywhereIsSeenBeforeTheSinkGetsIt) {
  const CutRules rules{1024, 256};
  const auto weights = test::sample_weights(4);
  const auto items = packed(weights, rules, Integrity::bucket);
  for (std::size_t i = 0; i + 1 < items.size(); ++i) {
    const auto length = items[i].message.header.length;
    if (length == 0) continue;
    auto* byte = static_cast<std::uint8_t*>(items[i].memory.mutable_data_ptr()) + (i * 37) % length;
    *byte ^= 4;
    CountingSink sink;
    EXPECT_THAT(assembled(items, rules, Integrity::bucket, sink), HasSubstr(formatted("bucket {} was damaged", i)));
    int whole_before = 0;
    for (std::size_t j = 0; j < i; ++j) whole_before += static_cast<int>(items[j].message.header.num_weights);
    EXPECT_LE(sink.views + sink.owned, whole_before);
    *byte ^= 4;
  }
}

TEST(WeightAssemblyTest, AStreamThatIsNotTheWholeStreamIsAnError) {
  const CutRules rules{1024, 256};
  const auto weights = test::sample_weights(4);
  const auto good = packed(weights, rules, Integrity::weight);
  const auto words = [&](const std::function<void(std::vector<BucketItem>&)>& change) {
    auto items = good;
    change(items);
    TensorMapSink sink;
    return assembled(items, rules, Integrity::weight, sink);
  };
  EXPECT_THAT(words([](auto& items) { items.erase(items.begin() + 4); }), HasSubstr("bucket 5 came where bucket 4"));
  EXPECT_THAT(words([](auto& items) { std::swap(items[3], items[4]); }), HasSubstr("bucket 4 came where bucket 3"));
  EXPECT_THAT(words([](auto& items) { items.erase(items.end() - 2); }), HasSubstr("commit record"));
  EXPECT_THAT(words([](auto& items) { items.erase(items.begin() + 5, items.end() - 1); }),
              HasSubstr("ends in the middle of weight 2 'large'"));
  EXPECT_THAT(words([](auto& items) { items[1].message.header.plan_hash ^= 1; }), HasSubstr("cut differently"));
  EXPECT_THAT(words([](auto& items) {
                items[1].message.header.length -= 1;
                items[1].message.header.has_digests = true;
                items[1].message.header.payload_digest =
                    digest_of(items[1].memory.const_data_ptr(), items[1].message.header.length);
              }),
              HasSubstr("cut differently"));
  EXPECT_THAT(words([](auto& items) { items.back().message.header.total_bytes += 1; }), HasSubstr("bytes"));
  EXPECT_THAT(words([](auto& items) { items.back().message.header.weights_digest += 1; }),
              HasSubstr("digest of all weights"));
  EXPECT_THAT(words([](auto& items) { items.back().message.header.payload_digest += 1; }),
              HasSubstr("digest of all payloads"));
  EXPECT_THAT(words([](auto& items) { items[2].message.header.has_digests = false; }), HasSubstr("without digests"));
}

TEST(WeightAssemblyTest, ACommitRecordOfAnotherVersionIsRefused) {
  const CutRules rules{1024, 256};
  const auto items = packed({}, rules, Integrity::bucket);
  TensorMapSink sink;
  WeightAssembly assembly(rules, Integrity::bucket, sink);
  assembly.set_version(4);
  Header commit = items.back().message.header;
  commit.model_version = 4;
  EXPECT_NO_THROW(assembly.finish(commit));
  commit.model_version = 3;
  EXPECT_THROW(assembly.finish(commit), CommError);
  commit.model_version = 4;
  commit.is_last = false;
  EXPECT_THROW(assembly.finish(commit), CommError);
}

// What a peer announces costs nothing before it is compared.
TEST(WeightAssemblyTest, AHugeAnnouncementIsRefusedAtOnce) {
  const CutRules rules{1024, 256};
  TensorMapSink sink;
  WeightAssembly assembly(rules, Integrity::none, sink);
  ControlMessage message;
  message.header.num_weights = 1;
  message.header.length = 1024;
  message.infos = encode_infos({{"huge", {std::int64_t{1} << 50}, at::kFloat}});
  message.header.info_bytes = message.infos.size();
  message.header.info_digest = static_cast<std::uint32_t>(digest_of(message.infos.data(), message.infos.size()));
  EXPECT_THROW(assembly.take(message, at::zeros({1024}, at::kByte)), ConfigError);
}

TEST(WeightAssemblyTest, AConjugateViewIsNoPlace) {
  class Conjugate : public TensorMapSink {
   public:
    at::Tensor storage_for(const WeightInfo& weight) override {
      return at::zeros(weight.shape, at::kComplexFloat).conj();
    }
  };
  const CutRules rules{1024, 256};
  const auto items = packed({{"c", at::ones({4}, at::kComplexFloat)}}, rules, Integrity::none);
  Conjugate sink;
  EXPECT_THAT(assembled(items, rules, Integrity::none, sink), HasSubstr("conjugate or negative view"));
}

TEST(WeightAssemblyTest, ASinksWordsAreKeptAndItsPlacesAreChecked) {
  class Bad : public TensorMapSink {
   public:
    at::Tensor storage_for(const WeightInfo& weight) override {
      if (weight.name == "half") throw std::runtime_error("no memory for it");
      return weight.name == "after.flags" ? place : at::Tensor();
    }
    at::Tensor place;
  };
  const CutRules rules{1024, 256};
  const auto items = packed(test::sample_weights(4), rules, Integrity::none);
  Bad bad;
  EXPECT_THAT(assembled(items, rules, Integrity::none, bad),
              testing::AllOf(HasSubstr("'half'"), HasSubstr("no memory for it")));
  // It is float32 [5]: of another shape, of another dtype, of strides.
  for (const at::Tensor& place : {at::ones({6}), at::ones({5}, at::kDouble), at::ones({10}).slice(0, 0, 10, 2)}) {
    bad.place = place;
    EXPECT_THAT(assembled(items, rules, Integrity::none, bad),
                HasSubstr("another dtype, shape or device for weight 'after.flags'"));
  }
}

}  // namespace
}  // namespace dbg::broadcast
