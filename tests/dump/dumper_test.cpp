// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about dump(): what is kept, what is recorded, and what the run must not notice.
#include "dbg/dumper.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using test::meta_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DumperTest : public test::DumperFixture {};

// ---- What is kept ----

TEST_F(DumperTest, OffWritesNothing) {
  Dumper dumper(config({"enable=false"}));
  int evaluated = 0;
  dumper.dump("x", at::ones({2}));
  dumper.dump("x", [&] { return ++evaluated; });
  dumper.dump_dict("d", std::map<std::string, at::Tensor>{{"a", at::ones({2})}});
  dumper.step();
  EXPECT_FALSE(dumper.is_enabled());
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(dumper.state().step, 0);
  EXPECT_EQ(dumper.state().dump_index, 0);
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(DumperTest, FilterKeepsByCallTag) {
  Dumper dumper(config({"filter=layer_id in (0, 2)"}));
  for (int layer = 0; layer < 4; ++layer) dumper.dump("x", at::ones({2}), {{"layer_id", layer}});
  EXPECT_THAT(file_tags("layer_id"), ElementsAre("0", "2"));
  EXPECT_EQ(dumper.state().counters.written, 2u);
  EXPECT_EQ(dumper.state().counters.filtered, 2u);
}

TEST_F(DumperTest, FilterKeepsByContext) {
  Dumper dumper(config({"filter=layer_id == 1"}));
  for (int layer = 0; layer < 3; ++layer) {
    dumper.set_ctx({{"layer_id", layer}});
    dumper.dump("x", at::ones({2}));
  }
  dumper.set_ctx({{"layer_id", nullptr}});
  dumper.dump("x", at::ones({2}));
  EXPECT_THAT(file_tags("layer_id"), ElementsAre("1"));
}

TEST_F(DumperTest, FilterKeepsByName) {
  Dumper dumper(config({"filter=name.startswith('attn') or name == 'mlp'"}));
  for (const char* name : {"attn_q", "mlp", "mlp_up", "pre_attn"}) dumper.dump(name, at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("attn_q", "mlp"));
}

TEST_F(DumperTest, FilterSearchesAlternatives) {
  Dumper dumper(config({"filter=search('attn|mlp$', name)"}));
  for (const char* name : {"attn_q", "pre_attn", "the_mlp", "mlp_up", "norm"}) dumper.dump(name, at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("attn_q", "pre_attn", "the_mlp"));
}

TEST_F(DumperTest, FilterTellsAMissingTagFromARange) {
  Dumper dumper(config({"filter=layer_id is None or 1 <= layer_id < 3"}));
  for (int layer = 0; layer < 4; ++layer) dumper.dump("x", at::ones({2}), {{"layer_id", layer}});
  dumper.dump("embedding", at::ones({2}));
  dumper.dump("none", at::ones({2}), {{"layer_id", nullptr}});
  EXPECT_THAT(file_tags("layer_id"), ElementsAre("1", "2", "<none>", "None"));
}

TEST_F(DumperTest, FilterSeesStepRankWorldSizeAndParallelRanks) {
  Dumper dumper(config({"filter=step == 1 and rank == 2 and world_size == 4 and tp_rank == 1 and tp_size == 2"}));
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->state.set("tp", 1, 2);
  dumper.add_plugin(plugin);
  for (int rank : {1, 2}) {
    const ParticipantScope scope(std::make_shared<const Participant>(rank, 4));
    dumper.dump("x", at::ones({2}));
    dumper.step();
    dumper.dump("x", at::ones({2}));
    plugin->state.set("tp", 0, 2);
    dumper.dump("other_tp", at::ones({2}));
    plugin->state.set("tp", 1, 2);
  }
  ASSERT_EQ(files().size(), 1u);
  EXPECT_THAT(file_names()[0], HasSubstr("step=1___rank=2___dump_index=1___name=x"));
}

TEST_F(DumperTest, SaveFalseWritesNothing) {
  Dumper dumper(config());
  int intercepted = 0;
  dumper.set_interceptor([&](const Interception&) { ++intercepted; });
  DumpOptions options;
  options.save = false;
  dumper.dump("x", at::ones({2}), {}, options);
  EXPECT_THAT(paths(), IsEmpty());
  EXPECT_EQ(intercepted, 1);
  EXPECT_EQ(dumper.state().counters.skipped, 1u);
}

TEST_F(DumperTest, FileAndConsoleAreIndependent) {
  std::size_t files_before = 0;
  std::size_t lines_before = 0;
  for (const bool file : {false, true}) {
    for (const bool console : {false, true}) {
      Dumper dumper(config({std::string("enable_output_file=") + (file ? "1" : "0"),
                            std::string("enable_output_console=") + (console ? "1" : "0")}));
      dumper.dump("x", at::ones({2}), {{"file", file}, {"console", console}});
      const std::size_t files_now = paths().size();
      const std::size_t lines_now = log_.count("[Dumper.Value]");
      EXPECT_EQ(files_now - files_before, file ? 1u : 0u) << file << console;
      EXPECT_EQ(lines_now - lines_before, console ? 1u : 0u) << file << console;
      files_before = files_now;
      lines_before = lines_now;
    }
  }
}

TEST_F(DumperTest, AllEnablesOffWritesNothingAndEvaluatesNothing) {
  Dumper dumper(config({"enable_value=false"}));
  int evaluated = 0;
  dumper.set_interceptor([&](const Interception&) { ++evaluated; });
  dumper.dump("x", [&] {
    ++evaluated;
    return at::ones({2});
  });
  EXPECT_THAT(paths(), IsEmpty());
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(dumper.state().counters.skipped, 1u);
}

TEST_F(DumperTest, EveryCallIsCountedOnce) {
  Dumper dumper(config({"enable_value=false", "enable_grad=true"}));
  dumper.dump("no_grad_will_ever_come", at::ones({2}));
  dumper.dump("not_even_a_tensor", 3);
  const DumperCounters counters = dumper.state().counters;
  EXPECT_EQ(counters.skipped, 2u);
  EXPECT_EQ(counters.written + counters.filtered + counters.dropped + counters.failed, 0u);
}

// ---- Values ----

TEST_F(DumperTest, CallableIsEvaluatedOnceAndOnlyAfterTheFilter) {
  Dumper dumper(config({"filter=name == 'kept'", "enable_output_console=true"}));
  int evaluated = 0;
  const auto value = [&] {
    ++evaluated;
    return at::ones({2});
  };
  dumper.dump("rejected", value);
  EXPECT_EQ(evaluated, 0);
  dumper.dump("kept", value);
  EXPECT_EQ(evaluated, 1);
}

TEST_F(DumperTest, PlainValuesPassThrough) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  c10::Dict<std::string, int64_t> dict;
  dict.insert("a", 1);
  dumper.dump("dict", c10::IValue(dict));
  dumper.dump("list", c10::IValue(std::vector<double>{0.5, 1.5}));
  dumper.dump("tuple", c10::IValue(std::make_tuple(int64_t{1}, std::string("b"))));
  dumper.dump("tensors", std::vector<at::Tensor>{at::ones({2}), at::zeros({1})});
  dumper.dump("int", 3);
  dumper.dump("size", std::size_t{4});
  dumper.dump("float", 0.5F);
  dumper.dump("bool", true);
  dumper.dump("text", "abc");
  dumper.dump("string", std::string("def"));
  dumper.dump("none", c10::IValue());
  const auto records = capture.records();
  const auto value = [&](const char* name) { return records.at(name).at(0).value; };
  EXPECT_EQ(value("dict").toGenericDict().at("a").toInt(), 1);
  EXPECT_THAT(value("list").toDoubleVector(), ElementsAre(0.5, 1.5));
  EXPECT_EQ(value("tuple").toTupleRef().elements()[1].toStringRef(), "b");
  EXPECT_TRUE(at::equal(value("tensors").toTensorVector().at(1), at::zeros({1})));
  EXPECT_EQ(value("int").toInt(), 3);
  EXPECT_EQ(value("size").toInt(), 4);
  EXPECT_EQ(value("float").toDouble(), 0.5);
  EXPECT_EQ(value("bool").toBool(), true);
  EXPECT_EQ(value("text").toStringRef(), "abc");
  EXPECT_EQ(value("string").toStringRef(), "def");
  EXPECT_TRUE(value("none").isNone());
}

TEST_F(DumperTest, CallablesMayReturnEveryPlainValue) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  dumper.dump("tensor", [] { return at::ones({2}); });
  dumper.dump("size", [] { return std::size_t{4}; });
  dumper.dump("unsigned", [] { return 5u; });
  dumper.dump("float", [] { return 0.5F; });
  dumper.dump("bool", [] { return true; });
  dumper.dump("text", [] { return "abc"; });
  dumper.dump("view", [] { return std::string_view("def"); });
  dumper.dump("ivalue", [] { return c10::IValue(std::vector<int64_t>{1, 2}); });
  auto counter = [n = 0]() mutable { return ++n; };
  dumper.dump("mutable", counter);
  const auto records = capture.records();
  const auto value = [&](const char* name) { return records.at(name).at(0).value; };
  EXPECT_TRUE(at::equal(value("tensor").toTensor(), at::ones({2})));
  EXPECT_EQ(value("size").toInt(), 4);
  EXPECT_EQ(value("unsigned").toInt(), 5);
  EXPECT_EQ(value("float").toDouble(), 0.5);
  EXPECT_TRUE(value("bool").isBool());
  EXPECT_EQ(value("text").toStringRef(), "abc");
  EXPECT_EQ(value("view").toStringRef(), "def");
  EXPECT_THAT(value("ivalue").toIntVector(), ElementsAre(1, 2));
  EXPECT_EQ(value("mutable").toInt(), 1);
}

TEST_F(DumperTest, NullTextIsNone) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  const char* const reason = nullptr;
  char* const buffer = nullptr;
  at::Tensor (*const callback)() = nullptr;
  dumper.dump("text", reason);
  dumper.dump("buffer", buffer);
  dumper.dump("null", nullptr);
  dumper.dump("returned", [&] { return reason; });
  dumper.dump("returned_null", [] { return nullptr; });
  dumper.dump("callback", callback);
  dumper.dump_dict("dict", std::map<std::string, const char*>{{"reason", reason}, {"text", "abc"}});
  const auto records = capture.records();
  for (const char* name : {"text", "buffer", "null", "returned", "returned_null", "callback", "dict_reason"}) {
    EXPECT_TRUE(records.at(name).at(0).value.isNone()) << name;
  }
  EXPECT_EQ(records.at("dict_text").at(0).value.toStringRef(), "abc");
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

TEST_F(DumperTest, DumpDictRecordsEachEntryUnderPrefixAndKey) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  dumper.dump_dict("map", std::map<std::string, at::Tensor>{{"a", at::ones({2})}, {"b", at::zeros({2})}},
                   {{"layer_id", 1}});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("c", at::ones({3}));
  dumper.dump_dict("dict", dict);
  dumper.dump_dict("ivalue", c10::IValue(dict));
  const auto records = capture.records();
  EXPECT_EQ(records.size(), 4u);
  EXPECT_TRUE(at::equal(records.at("map_b").at(0).value.toTensor(), at::zeros({2})));
  EXPECT_EQ(meta_of(records.at("map_a").at(0), "layer_id").toInt(), 1);
  EXPECT_TRUE(at::equal(records.at("dict_c").at(0).value.toTensor(), at::ones({3})));
  EXPECT_TRUE(at::equal(records.at("ivalue_c").at(0).value.toTensor(), at::ones({3})));
}

TEST_F(DumperTest, DumpDictOfSomethingElseIsCountedAndSaidAtALimitedRate) {
  Dumper dumper(config());
  c10::Dict<int64_t, at::Tensor> dict;
  dict.insert(1, at::ones({3}));
  for (int i = 0; i < 100; ++i) {
    dumper.dump_dict("list", c10::IValue(std::vector<int64_t>{1}));
    dumper.dump_dict("numbers", c10::IValue(dict));
  }
  EXPECT_EQ(dumper.state().counters.skipped, 200u);
  EXPECT_GE(log_.count("expected a dict"), 1u);
  EXPECT_LE(log_.lines().size(), 20u);
}

// A dict whose iteration fails, as one that is being changed by its owner may.
struct ThrowingDict {
  struct Iterator {
    std::pair<std::string, at::Tensor> operator*() const { throw std::runtime_error("the dict is gone"); }
    Iterator& operator++() { return *this; }
    bool operator!=(const Iterator&) const { return true; }
  };
  Iterator begin() const { return {}; }
  Iterator end() const { return {}; }
};

TEST_F(DumperTest, DumpDictFencesItsRange) {
  Dumper dumper(config());
  EXPECT_NO_THROW(dumper.dump_dict("d", ThrowingDict()));
  EXPECT_EQ(dumper.state().counters.failed, 1u);
  EXPECT_EQ(log_.count("the dict is gone"), 1u);
  dumper.configure({"strict=true"});
  EXPECT_THROW(dumper.dump_dict("d", ThrowingDict()), std::runtime_error);
}

TEST_F(DumperTest, UndefinedAndMetaTensorsAreSkippedWithAReason) {
  Dumper dumper(config());
  dumper.dump("undefined", at::Tensor());
  dumper.dump("meta", at::empty({3}, at::TensorOptions().device(at::kMeta)));
  dumper.dump("nested", std::vector<at::Tensor>{at::ones({1}), at::Tensor()});
  EXPECT_THAT(paths(), IsEmpty());
  EXPECT_EQ(dumper.state().counters.skipped, 3u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
  EXPECT_EQ(dumper.state().dump_index, 0) << "an index without a record looks like a lost record";
  EXPECT_EQ(log_.count("'undefined' is not recorded"), 1u);
  EXPECT_EQ(log_.count("'meta' is not recorded"), 1u);
}

TEST_F(DumperTest, TensorOverwrittenAfterTheCallIsRecordedWithItsOldValue) {
  Dumper dumper(config());
  at::Tensor tensor = at::arange(5.0);
  dumper.dump("x", tensor);
  tensor.fill_(-1);
  dumper.dump("x", tensor);
  ASSERT_EQ(paths().size(), 2u);
  EXPECT_TRUE(at::equal(test::read_file(paths()[0]).value.toTensor(), at::arange(5.0)));
  EXPECT_TRUE(at::equal(test::read_file(paths()[1]).value.toTensor(), at::full({5}, -1.0)));
}

TEST_F(DumperTest, FileHoldsExactlyValueAndMeta) {
  Dumper dumper(config());
  dumper.dump("x", at::ones({2}), {{"layer_id", 3}});
  ASSERT_EQ(paths().size(), 1u);
  const auto content = codec::read_archive_file(paths()[0]).toGenericDict();
  EXPECT_EQ(content.size(), 2u);
  EXPECT_TRUE(at::equal(content.at("value").toTensor(), at::ones({2})));
  EXPECT_EQ(content.at("meta").toGenericDict().at("layer_id").toInt(), 3);
}

TEST_F(DumperTest, SmallViewOfALargeTensorIsASmallFile) {
  Dumper dumper(config());
  const at::Tensor large = at::zeros({1'000'000});
  dumper.dump("view", large.slice(0, 10, 13));
  dumper.dump("list", std::vector<at::Tensor>{large.slice(0, 10, 13)});
  ASSERT_EQ(paths().size(), 2u);
  for (const std::string& path : paths()) EXPECT_LT(std::filesystem::file_size(path), 10'000u) << path;
}

TEST_F(DumperTest, DumpedTensorAndRandomStateStayAsTheyWere) {
  Dumper dumper(config({"enable_output_console=true", "enable_grad=true"}));
  at::Tensor leaf = at::rand({4, 5}).t().requires_grad_();
  leaf.mul(2).sum().backward();
  const at::Tensor grad = leaf.grad();
  const at::Tensor copy = leaf.detach().clone();
  const auto version = leaf._version();
  const void* data = leaf.data_ptr();
  const at::Tensor random = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const int before = std::rand();
  std::srand(1);
  const int expected = std::rand();
  std::srand(1);

  dumper.dump("leaf", leaf);
  dumper.dump("view", leaf.select(0, 1));

  EXPECT_EQ(std::rand(), expected) << before;
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(at::kCPU).get_state(), random));
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_TRUE(leaf.grad().is_same(grad));
  EXPECT_EQ(leaf.strides(), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(leaf._version(), version);
  EXPECT_EQ(leaf.data_ptr(), data);
  EXPECT_TRUE(at::equal(leaf.detach(), copy));
  EXPECT_EQ(paths().size(), 2u);
}

TEST_F(DumperTest, InferenceTensorsAreRecorded) {
  Dumper dumper(config({"enable_grad=true", "enable_output_console=true"}));
  at::Tensor inference;
  {
    const c10::InferenceMode guard;
    inference = at::arange(3.0);
    dumper.dump("inside", inference);
    dumper.dump("wants_grad", at::ones({2}).requires_grad_());
  }
  dumper.dump("outside", inference);
  EXPECT_THAT(file_tags("name"), ElementsAre("inside", "wants_grad", "outside"));
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

TEST_F(DumperTest, CapturedCopyOfAnInferenceTensorIsAnOrdinaryTensor) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  {
    const c10::InferenceMode guard;
    dumper.dump("x", at::arange(3.0));
  }
  at::Tensor copy = capture.records().at("x").at(0).value.toTensor();
  EXPECT_FALSE(copy.is_inference());
  EXPECT_NO_THROW(copy.add_(1));
}

}  // namespace
}  // namespace dbg
