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

#include "codec/archive.h"
#include "dbg/error.h"

namespace dbg {
namespace {

std::string bytes_of(const codec::Archive& archive) {
  class Sink final : public codec::ByteSink {
   public:
    int write(const void* data, std::size_t size) noexcept override {
      bytes.append(static_cast<const char*>(data), size);
      return 0;
    }
    std::string bytes;
  };
  Sink sink;
  archive.write_to(sink);
  return sink.bytes;
}

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
  draft.extra_meta.emplace_back("dims", "h");
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

// The file's bytes are those of the record that a capture holds.
TEST(SinkTest, WritesTheBytesOfItsRecord) {
  ParallelState megatron;
  megatron.set("tp", 1, 2).set("pp", 0, 4);
  const ParallelState empty;
  RecordDraft draft;
  draft.pairs = {{"step", 2},    {"rank", -1},      {"dump_index", 1L << 40}, {"name", "x"},
                 {"flag", true}, {"none", nullptr}, {"real", -0.0},           {"text", "\xC3\xA4\xFF"}};
  draft.extra_meta = {
      {"world_rank", 0}, {"megatron_parallel_info", megatron}, {"other_parallel_info", empty}, {"dims", "b h"}};
  const at::Tensor tensor = at::arange(6).view({2, 3});
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("a", tensor);
  dict.insert("b", tensor.t());
  for (const c10::IValue& value : {c10::IValue(tensor), c10::IValue(dict), c10::IValue(), c10::IValue(3)}) {
    draft.value = value;
    const DumpRecord record = draft.record();
    c10::impl::GenericDict root(c10::StringType::get(), c10::AnyType::get());
    root.insert("value", record.value);
    root.insert("meta", record.meta);
    const codec::Archive expected{c10::IValue(root)};
    const codec::Archive written(
        [&](codec::PickleWriter& out, const codec::TensorEmitter& emit) { draft.write_to(out, emit); });
    EXPECT_EQ(bytes_of(written), bytes_of(expected));
  }
}

// What a reader would stop at is refused while it is written, the meta's own weight counted.
TEST(SinkTest, WeighsItsMetaWithItsValue) {
  c10::List<std::int64_t> numbers;
  numbers.resize((codec::kMaxWeight - 100) / 2);
  RecordDraft draft;
  draft.value = numbers;
  const auto weigh = [&] {
    codec::PickleWriter out;
    draft.write_to(out, [](codec::PickleWriter&, const at::Tensor&) {});
  };
  EXPECT_NO_THROW(weigh());
  std::vector<std::string> keys(40);
  for (std::size_t i = 0; i < keys.size(); ++i) draft.pairs.emplace_back(keys[i] = std::to_string(i), 1);
  EXPECT_THROW(weigh(), ConfigError);
  draft.pairs.clear();
  ParallelState state;
  for (const std::string& key : keys) state.set("axis" + key, 0, 1);
  draft.extra_meta.emplace_back("x_parallel_info", state);
  EXPECT_THROW(weigh(), ConfigError);
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
