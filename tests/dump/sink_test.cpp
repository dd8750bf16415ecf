// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about a draft's meta and about copies of values.
#include "dump/sink.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace dbg {
namespace {

TEST(SinkTest, TagsBecomeWhatPythonReadsBack) {
  EXPECT_TRUE(to_ivalue(TagView()).isNone());
  EXPECT_TRUE(to_ivalue(true).isBool());
  EXPECT_EQ(to_ivalue(3).toInt(), 3);
  EXPECT_EQ(to_ivalue(0.5).toDouble(), 0.5);
  EXPECT_EQ(to_ivalue("text").toStringRef(), "text");
}

TEST(SinkTest, DraftsRecordHasPairsAndExtraMetaInOrder) {
  RecordDraft draft;
  draft.pairs = {{"step", 2}, {"rank", 0}, {"dump_index", 7}, {"name", "x"}, {"flag", true}};
  draft.extra_meta.emplace_back("dims", std::string("h"));
  draft.value = at::ones({2});
  const DumpRecord record = draft.record();
  std::vector<std::string> keys;
  for (const auto& entry : record.meta.toGenericDict()) keys.push_back(entry.key().toStringRef());
  EXPECT_THAT(keys, testing::ElementsAre("step", "rank", "dump_index", "name", "flag", "dims"));
  EXPECT_EQ(draft.pairs[RecordDraft::kDumpIndexAt].first, "dump_index");
  EXPECT_EQ(draft.pairs[RecordDraft::kNameAt].first, "name");
  EXPECT_EQ(draft.file_name(), "step=2___rank=0___dump_index=7___name=x___flag=True.pt");
  EXPECT_TRUE(record.value.toTensor().is_same(draft.value.toTensor())) << "shared, not copied";
}

TEST(SinkTest, DeepCopyIsDetachedAndKeepsLayoutAndDtype) {
  const at::Tensor leaf = at::rand({4, 3}).t().requires_grad_();
  const at::Tensor copy = deep_copy(c10::IValue(leaf)).toTensor();
  EXPECT_FALSE(copy.requires_grad());
  EXPECT_FALSE(copy.is_alias_of(leaf));
  EXPECT_EQ(copy.strides(), leaf.strides());
  EXPECT_TRUE(at::equal(copy, leaf));
  for (const auto dtype : {at::kBool, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kFloat8_e4m3fn, at::kUInt64}) {
    EXPECT_EQ(deep_copy(c10::IValue(at::ones({2}).to(dtype))).toTensor().scalar_type(), dtype);
  }
}

TEST(SinkTest, DeepCopyKeepsPlainValues) {
  EXPECT_TRUE(deep_copy(c10::IValue()).isNone());
  EXPECT_EQ(deep_copy(c10::IValue(std::string("a"))).toStringRef(), "a");
  EXPECT_FALSE(deep_copy(c10::IValue(at::Tensor())).toTensor().defined());
  const at::Tensor tensor = at::ones({2});
  const c10::IValue tuple(std::make_tuple(tensor, int64_t{3}));
  const c10::IValue copied = deep_copy(tuple);
  EXPECT_FALSE(copied.toTupleRef().elements()[0].toTensor().is_alias_of(tensor));
  EXPECT_EQ(copied.toTupleRef().elements()[1].toInt(), 3);
}

}  // namespace
}  // namespace dbg
