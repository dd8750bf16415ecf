// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about what a record says of itself: file name, meta, context, and what plugins add.
#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using test::has_meta;
using test::keys_of;
using test::meta_of;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

class DumperTagsTest : public test::DumperFixture {
 protected:
  // The one record that `dump` leads to.
  template <class Dump>
  DumpRecord record_of(Dumper& dumper, Dump dump) {
    const auto capture = dumper.capture_output();
    dump();
    const auto records = capture.records();
    if (records.size() != 1 || records.begin()->second.size() != 1) throw std::runtime_error("not one record");
    return records.begin()->second.front();
  }

  DumpRecord record_of(Dumper& dumper, TagList tags = {}, const DumpOptions& options = {}) {
    return record_of(dumper, [&] { dumper.dump("x", at::ones({2}), tags, options); });
  }

  std::vector<std::string> meta_keys(const DumpRecord& record) const {
    std::vector<std::string> keys;
    for (const auto& entry : record.meta.toGenericDict()) keys.push_back(entry.key().toStringRef());
    return keys;
  }
};

// ---- File name and meta ----

TEST_F(DumperTagsTest, FileNameHasThePairsInOrder) {
  Dumper dumper(config());
  dumper.set_ctx({{"phase", "decode"}});
  dumper.set_ctx({{"batch", 3}});
  dumper.dump("x", at::ones({2}), {{"layer_id", 3}, {"a", nullptr}, {"b", true}, {"c", 0.5}});
  EXPECT_THAT(file_names(), ElementsAre("step=0___rank=0___dump_index=1___name=x___recompute_status=disabled___"
                                        "layer_id=3___a=None___b=True___c=0.5___phase=decode___batch=3.pt"));
}

TEST_F(DumperTagsTest, FirstRecordHasIndexOneAndOnlyRecordsCount) {
  Dumper dumper(config({"filter=name != 'rejected'"}));
  dumper.dump("rejected", at::ones({2}));
  dumper.dump("a", at::ones({2}));
  dumper.dump("undefined", at::Tensor());
  dumper.step();
  dumper.dump("b", at::ones({2}));
  EXPECT_THAT(file_tags("dump_index"), ElementsAre("1", "2"));
  EXPECT_THAT(file_tags("step"), ElementsAre("0", "1"));
}

TEST_F(DumperTagsTest, MetaHasRealTypes) {
  Dumper dumper(config());
  const ParticipantScope scope(std::make_shared<const Participant>(1, 4));
  dumper.step();
  const DumpRecord record =
      record_of(dumper, {{"layer_id", 3}, {"none", nullptr}, {"flag", true}, {"real", 0.5}, {"text", "a/b"}});
  EXPECT_EQ(meta_of(record, "step").toInt(), 1);
  EXPECT_EQ(meta_of(record, "rank").toInt(), 1);
  EXPECT_EQ(meta_of(record, "dump_index").toInt(), 1);
  EXPECT_EQ(meta_of(record, "world_rank").toInt(), 1);
  EXPECT_EQ(meta_of(record, "world_size").toInt(), 4);
  EXPECT_EQ(meta_of(record, "name").toStringRef(), "x");
  EXPECT_EQ(meta_of(record, "recompute_status").toStringRef(), "disabled");
  EXPECT_EQ(meta_of(record, "layer_id").toInt(), 3);
  EXPECT_TRUE(meta_of(record, "none").isNone());
  EXPECT_TRUE(meta_of(record, "flag").isBool());
  EXPECT_EQ(meta_of(record, "real").toDouble(), 0.5);
  EXPECT_EQ(meta_of(record, "text").toStringRef(), "a/b") << "escaped in the file name only";
  EXPECT_TRUE(meta_of(record, "dbg_version").isString());
}

TEST_F(DumperTagsTest, DimsAreInTheMetaAndNotInTheFileName) {
  Dumper dumper(config({"enable_grad=true"}));
  DumpOptions options;
  options.dims = "b s[cp] h[tp]";
  EXPECT_EQ(meta_of(record_of(dumper, {}, options), "dims").toStringRef(), "b s[cp] h[tp]");
  EXPECT_FALSE(has_meta(record_of(dumper, {}, options), "dims_grad"));
  EXPECT_FALSE(has_meta(record_of(dumper), "dims"));
  options.dims_grad = "b s h";
  EXPECT_EQ(meta_of(record_of(dumper, {}, options), "dims").toStringRef(), "b s[cp] h[tp]");
  EXPECT_EQ(meta_of(record_of(dumper, {}, options), "dims_grad").toStringRef(), "b s h");
  dumper.dump("x", at::ones({2}), {}, options);
  EXPECT_THAT(keys_of(files().at(0)), ElementsAre("step", "rank", "dump_index", "name", "recompute_status"));
}

TEST_F(DumperTagsTest, GradientInheritsDimsOrTakesItsOwn) {
  Dumper dumper(config({"enable_grad=true"}));
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const auto capture = dumper.capture_output();
  DumpOptions options;
  options.dims = "h[tp]";
  dumper.dump("inherits", leaf, {}, options);
  options.dims_grad = "h";
  dumper.dump("own", leaf, {}, options);
  leaf.sum().backward();
  const auto records = capture.records();
  EXPECT_EQ(meta_of(records.at("grad__inherits").at(0), "dims").toStringRef(), "h[tp]");
  EXPECT_EQ(meta_of(records.at("grad__own").at(0), "dims").toStringRef(), "h");
  EXPECT_FALSE(has_meta(records.at("grad__own").at(0), "dims_grad"));
}

// ---- Reserved and doubled tags ----

TEST_F(DumperTagsTest, ReservedTagsAreRenamedWithOneWarning) {
  Dumper dumper(config());
  const DumpRecord plain = record_of(dumper);
  for (const char* key : {"step", "rank", "dump_index", "world_rank", "world_size"}) {
    const DumpRecord record = record_of(dumper, {{key, 77}});
    EXPECT_EQ(meta_of(record, std::string("user_") + key).toInt(), 77) << key;
    EXPECT_NE(meta_of(record, key).toInt(), 77) << key;
  }
  dumper.dump("x", at::ones({2}), {{"rank", 5}});
  EXPECT_EQ(file_tags("user_rank").at(0), "5");
  EXPECT_EQ(file_tags("rank").at(0), "0");
  EXPECT_EQ(log_.count("reserved"), 1u);
}

// A meta is a dict: a tag of the name of anything that dbg writes would hide it, or be hidden.
TEST_F(DumperTagsTest, NoTagCanContradictWhatTheRecordSaysItself) {
  Dumper dumper(config());
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->state.set("tp", 0, 2);
  plugin->recompute = RecomputeStatus::original;
  dumper.add_plugin(plugin);
  DumpOptions options;
  options.dims = "h";
  options.dims_grad = "h";
  const DumpRecord plain = record_of(dumper, {}, options);
  std::vector<std::string> keys = meta_keys(plain);
  keys.push_back("local_name");
  for (const std::string& key : keys) {
    const DumpRecord record = record_of(dumper, {{key, "mine"}}, options);
    EXPECT_EQ(meta_of(record, "user_" + key).toStringRef(), "mine") << key;
    if (key == "local_name" || key == "dump_index") continue;
    EXPECT_EQ(meta_of(record, key), meta_of(plain, key)) << key;
  }
}

TEST_F(DumperTagsTest, CallWinsOverContextWithOneWarning) {
  Dumper dumper(config());
  dumper.set_ctx({{"layer_id", 1}, {"phase", "decode"}});
  for (int i = 0; i < 3; ++i) {
    const DumpRecord record = record_of(dumper, {{"layer_id", 2}});
    EXPECT_EQ(meta_of(record, "layer_id").toInt(), 2);
    EXPECT_EQ(meta_of(record, "phase").toStringRef(), "decode");
  }
  dumper.dump("x", at::ones({2}), {{"layer_id", 2}});
  EXPECT_THAT(keys_of(files().at(0)),
              ElementsAre("step", "rank", "dump_index", "name", "recompute_status", "layer_id", "phase"));
  EXPECT_EQ(log_.count("given twice"), 1u);
}

// Beyond a few dozen tags they are found by an index.
TEST_F(DumperTagsTest, CallWinsOverContextAmongManyTagsToo) {
  Dumper dumper(config());
  const auto capture = dumper.capture_output();
  for (int i = 0; i < 100; ++i) dumper.set_ctx({{"tag" + std::to_string(i), "context"}});
  dumper.dump("x", at::ones({2}), {{"first", 0}, {"tag7", "call"}, {"tag99", "call"}, {"step", 5}});
  const DumpRecord record = capture.records().at("x").at(0);
  EXPECT_EQ(meta_of(record, "user_step").toInt(), 5);
  for (int i = 0; i < 100; ++i) {
    const std::string key = "tag" + std::to_string(i);
    EXPECT_EQ(meta_of(record, key).toStringRef(), i == 7 || i == 99 ? "call" : "context") << key;
  }
  dumper.set_ctx({{"user_step", 1}});  // met after the index was made
  dumper.dump("y", at::ones({2}), {{"step", 6}});
  EXPECT_EQ(meta_of(capture.records().at("y").at(0), "user_step").toInt(), 6);
  EXPECT_EQ(log_.count("given twice"), 1u);
}

TEST_F(DumperTagsTest, FilterSeesTheCallsTagAndNotTheContexts) {
  Dumper dumper(config({"filter=layer_id == 2"}));
  dumper.set_ctx({{"layer_id", 1}});
  dumper.dump("x", at::ones({2}), {{"layer_id", 2}});
  dumper.set_ctx({{"layer_id", 2}});
  dumper.dump("y", at::ones({2}), {{"layer_id", 1}});
  EXPECT_THAT(file_tags("name"), ElementsAre("x"));
}

// ---- Context ----

TEST_F(DumperTagsTest, SetCtxMergesAndNoneDeletes) {
  Dumper dumper(config());
  dumper.set_ctx({{"a", 1}, {"b", 2}});
  dumper.set_ctx({{"a", 3}, {"c", 4}});
  DumpRecord record = record_of(dumper);
  EXPECT_EQ(meta_of(record, "a").toInt(), 3);
  EXPECT_EQ(meta_of(record, "b").toInt(), 2);
  EXPECT_EQ(meta_of(record, "c").toInt(), 4);
  dumper.set_ctx({{"a", nullptr}, {"not_there", nullptr}});
  record = record_of(dumper);
  EXPECT_FALSE(has_meta(record, "a"));
  EXPECT_FALSE(has_meta(record, "not_there"));
  EXPECT_TRUE(has_meta(record, "b"));
}

TEST_F(DumperTagsTest, ContextSetWhileOffCountsOnceOn) {
  Dumper dumper(config({"enable=false"}));
  dumper.set_ctx({{"engine", "a"}});
  const ContextScope scope(dumper, {{"phase", "decode"}});
  dumper.configure({"enable=true"});
  const DumpRecord record = record_of(dumper);
  EXPECT_EQ(meta_of(record, "engine").toStringRef(), "a");
  EXPECT_EQ(meta_of(record, "phase").toStringRef(), "decode");
}

TEST_F(DumperTagsTest, ContextScopeRestoresTheOuterValues) {
  Dumper dumper(config());
  dumper.set_ctx({{"a", 1}, {"b", 2}});
  {
    const ContextScope outer(dumper, {{"a", 10}, {"c", 30}});
    {
      const ContextScope inner(dumper, {{"a", 100}, {"b", nullptr}});
      const DumpRecord record = record_of(dumper);
      EXPECT_EQ(meta_of(record, "a").toInt(), 100);
      EXPECT_FALSE(has_meta(record, "b"));
      EXPECT_EQ(meta_of(record, "c").toInt(), 30);
      dumper.set_ctx({{"d", 4}});
    }
    const DumpRecord record = record_of(dumper);
    EXPECT_EQ(meta_of(record, "a").toInt(), 10);
    EXPECT_EQ(meta_of(record, "b").toInt(), 2);
    EXPECT_EQ(meta_of(record, "d").toInt(), 4) << "what the scope does not own stays";
  }
  const DumpRecord record = record_of(dumper);
  EXPECT_EQ(meta_of(record, "a").toInt(), 1);
  EXPECT_EQ(meta_of(record, "b").toInt(), 2);
  EXPECT_FALSE(has_meta(record, "c"));
}

TEST_F(DumperTagsTest, ContextScopeRestoresTheOrderToo) {
  Dumper dumper(config());
  dumper.set_ctx({{"a", 1}, {"b", 2}});
  { const ContextScope scope(dumper, {{"a", nullptr}}); }
  dumper.dump("x", at::ones({2}));
  EXPECT_THAT(keys_of(files().at(0)), ElementsAre("step", "rank", "dump_index", "name", "recompute_status", "a", "b"))
      << "two runs' file names differ otherwise";
}

TEST_F(DumperTagsTest, ContextScopeRestoresNothingAfterAReset) {
  Dumper dumper(config());
  dumper.set_ctx({{"a", 1}});
  {
    const ContextScope scope(dumper, {{"a", 2}});
    dumper.reset();
    dumper.set_ctx({{"b", 3}});
  }
  const DumpRecord record = record_of(dumper);
  EXPECT_FALSE(has_meta(record, "a"));
  EXPECT_EQ(meta_of(record, "b").toInt(), 3);
}

TEST_F(DumperTagsTest, ContextScopeRestoresTheParticipantItChanged) {
  Dumper dumper(config());
  const auto other = std::make_shared<const Participant>(1, 2);
  std::optional<ContextScope> scope;
  {
    const ParticipantScope bound(other);
    scope.emplace(dumper, TagList{{"a", 1}});
  }
  scope.reset();
  const ParticipantScope bound(other);
  EXPECT_FALSE(has_meta(record_of(dumper), "a"));
}

TEST_F(DumperTagsTest, ContextScopeMayOutliveTheDumper) {
  std::optional<Dumper> dumper(std::in_place, config());
  const ContextScope scope(*dumper, {{"a", 1}});
  dumper.reset();
}

TEST_F(DumperTagsTest, ContextScopeRestoresWhenItsBodyThrows) {
  Dumper dumper(config());
  try {
    const ContextScope scope(dumper, {{"a", 1}});
    throw std::runtime_error("the model's own");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(has_meta(record_of(dumper), "a"));
}

TEST_F(DumperTagsTest, ContextsOfTwoDumpersAreTheirOwn) {
  Dumper one(config());
  Dumper two(config());
  one.set_ctx({{"a", 1}});
  EXPECT_TRUE(has_meta(record_of(one), "a"));
  EXPECT_FALSE(has_meta(record_of(two), "a"));
}

// ---- Recomputation ----

TEST_F(DumperTagsTest, RecomputeStatusComesFromAPlugin) {
  Dumper dumper(config());
  auto silent = std::make_shared<test::FakePlugin>();
  auto plugin = std::make_shared<test::FakePlugin>();
  dumper.add_plugin(silent);
  dumper.add_plugin(plugin);
  EXPECT_EQ(meta_of(record_of(dumper), "recompute_status").toStringRef(), "disabled");
  EXPECT_FALSE(has_meta(record_of(dumper), "recompute_pseudo_rank"));

  plugin->recompute = RecomputeStatus::original;
  DumpRecord record = record_of(dumper);
  EXPECT_EQ(meta_of(record, "recompute_status").toStringRef(), "original");
  EXPECT_EQ(meta_of(record, "recompute_pseudo_rank").toInt(), 0);
  EXPECT_EQ(meta_of(record, "recompute_pseudo_size").toInt(), 2);

  plugin->recompute = RecomputeStatus::recompute;
  record = record_of(dumper);
  EXPECT_EQ(meta_of(record, "recompute_status").toStringRef(), "recompute");
  EXPECT_EQ(meta_of(record, "recompute_pseudo_rank").toInt(), 1);
  EXPECT_EQ(meta_of(record, "recompute_pseudo_size").toInt(), 2);

  dumper.configure({"filter=recompute_status != 'recompute'"});
  dumper.dump("x", at::ones({2}));
  EXPECT_EQ(dumper.state().counters.filtered, 1u);
}

// ---- Parallel ranks ----

class DumperParallelTest : public DumperTagsTest {
 protected:
  std::shared_ptr<test::FakePlugin> add(Dumper& dumper, const ParallelState& state,
                                        std::string meta_name = "megatron") {
    auto plugin = std::make_shared<test::FakePlugin>();
    plugin->plugin_name = "plugin" + std::to_string(++plugins_);
    plugin->state = state;
    plugin->meta_name = std::move(meta_name);
    dumper.add_plugin(plugin);
    return plugin;
  }
  std::map<std::string, std::int64_t> info(const DumpRecord& record, const std::string& key) {
    std::map<std::string, std::int64_t> axes;
    for (const auto& entry : meta_of(record, key).toGenericDict()) {
      axes[entry.key().toStringRef()] = entry.value().toInt();
    }
    return axes;
  }
  int plugins_ = 0;
};

TEST_F(DumperParallelTest, MetaHasTheRanksUnderTheNameThatPythonReads) {
  Dumper dumper(config());
  add(dumper, ParallelState().set("tp", 1, 2).set("dp", 0, 3));
  const DumpRecord record = record_of(dumper);
  EXPECT_EQ(info(record, "megatron_parallel_info"),
            (std::map<std::string, std::int64_t>{{"tp_rank", 1}, {"tp_size", 2}, {"dp_rank", 0}, {"dp_size", 3}}));
  EXPECT_FALSE(has_meta(record, "sglang_parallel_info"));
  EXPECT_FALSE(has_meta(record, "tp_rank"));
}

TEST_F(DumperParallelTest, FrameworkPluginDefaultsToMegatron) {
  struct Plain : FrameworkPlugin {
    std::string name() const override { return "plain"; }
  };
  EXPECT_EQ(Plain().parallel_info_name(), "megatron");
}

TEST_F(DumperParallelTest, PluginsThatShareAMetaNameAreMergedAndOthersStandApart) {
  Dumper dumper(config());
  add(dumper, ParallelState().set("tp", 1, 2));
  add(dumper, ParallelState().set("tp", 0, 4).set("pp", 1, 2));
  add(dumper, ParallelState().set("ep", 0, 2), "own");
  const DumpRecord record = record_of(dumper);
  EXPECT_EQ(info(record, "megatron_parallel_info"),
            (std::map<std::string, std::int64_t>{{"tp_rank", 1}, {"tp_size", 2}, {"pp_rank", 1}, {"pp_size", 2}}));
  EXPECT_EQ(info(record, "own_parallel_info"), (std::map<std::string, std::int64_t>{{"ep_rank", 0}, {"ep_size", 2}}));
}

TEST_F(DumperParallelTest, NoPluginAndAnEmptyOneWriteNoInfo) {
  Dumper dumper(config({"include_parallel_rank_in_filename=true"}));
  EXPECT_FALSE(has_meta(record_of(dumper), "megatron_parallel_info"));
  add(dumper, {});
  EXPECT_FALSE(has_meta(record_of(dumper), "megatron_parallel_info"));
}

TEST_F(DumperParallelTest, FileNamesHaveNoParallelRanksByDefault) {
  Dumper dumper(config());
  add(dumper, ParallelState().set("tp", 1, 2));
  dumper.dump("x", at::ones({2}));
  EXPECT_EQ(file_tags("tp_rank").at(0), "<none>");
}

TEST_F(DumperParallelTest, FileNamesHaveTheRanksInTheTwinsOrderWhenAsked) {
  Dumper dumper(config({"include_parallel_rank_in_filename=true"}));
  add(dumper, {});
  add(dumper, ParallelState().set("etp", 1, 2).set("ep", 2, 4).set("dp", 3, 4).set("tp", 1, 2));
  add(dumper, ParallelState().set("tp", 0, 4).set("cp", 1, 2).set("pp", 1, 4));
  dumper.dump("x", at::ones({2}), {{"layer_id", 0}});
  EXPECT_THAT(file_names(), ElementsAre("step=0___rank=0___dump_index=1___name=x___recompute_status=disabled___"
                                        "layer_id=0___pp_rank=1___tp_rank=1___cp_rank=1___ep_rank=2___etp_rank=1.pt"));
  const DumpRecord record = record_of(dumper);
  EXPECT_EQ(meta_of(record, "tp_rank").toInt(), 1) << "the file name's pairs are in the meta";
}

TEST_F(DumperParallelTest, ThrowingPluginCostsOneWarningAndItsPartOnly) {
  Dumper dumper(config({"include_parallel_rank_in_filename=true"}));
  add(dumper, ParallelState().set("tp", 1, 2))->throws = true;
  add(dumper, ParallelState().set("pp", 1, 2));
  for (int i = 0; i < 5; ++i) dumper.dump("x", at::ones({2}));
  EXPECT_THAT(file_tags("pp_rank"), ElementsAre("1", "1", "1", "1", "1"));
  EXPECT_THAT(file_tags("tp_rank"), testing::Each("<none>"));
  EXPECT_EQ(log_.count("no groups yet"), 1u);
  EXPECT_EQ(log_.count("no status"), 1u) << "another question, another line";
  EXPECT_GE(dumper.state().counters.plugin_faults, 5u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

// The filter asks the plugins too; what one can't say is None there, as an axis that nobody knows.
TEST_F(DumperParallelTest, ThrowingPluginIsNoneToTheFilter) {
  Dumper dumper(config({"filter=tp_rank is None and pp_rank == 1"}));
  add(dumper, ParallelState().set("tp", 1, 2))->throws = true;
  const auto other = add(dumper, ParallelState().set("pp", 1, 2));
  for (int i = 0; i < 5; ++i) dumper.dump("x", at::ones({2}));
  other->state = ParallelState().set("pp", 0, 2);
  dumper.dump("y", at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("x", "x", "x", "x", "x"));
  EXPECT_EQ(log_.count("no groups yet"), 1u);
  EXPECT_EQ(dumper.state().counters.filtered, 1u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

TEST_F(DumperParallelTest, CallTagOfTheSameKeyWinsWithOneWarning) {
  Dumper dumper(config({"include_parallel_rank_in_filename=true"}));
  add(dumper, ParallelState().set("tp", 1, 2));
  for (int i = 0; i < 3; ++i) dumper.dump("x", at::ones({2}), {{"tp_rank", 9}});
  EXPECT_THAT(file_tags("tp_rank"), ElementsAre("9", "9", "9"));
  EXPECT_EQ(log_.count("'tp_rank'"), 1u);
}

TEST_F(DumperParallelTest, RemovedPluginIsNotAskedAgain) {
  Dumper dumper(config());
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->state.set("tp", 1, 2);
  PluginHandle handle = dumper.add_plugin(plugin);
  PluginHandle copy = handle;
  EXPECT_TRUE(has_meta(record_of(dumper), "megatron_parallel_info"));
  handle.remove();
  handle.remove();
  copy.remove();
  PluginHandle().remove();
  EXPECT_FALSE(has_meta(record_of(dumper), "megatron_parallel_info"));
  EXPECT_EQ(plugin.use_count(), 1) << "a removed plugin is not kept alive";
}

TEST_F(DumperParallelTest, HandleKeepsNothingAlive) {
  auto plugin = std::make_shared<test::FakePlugin>();
  PluginHandle handle;
  {
    Dumper dumper(config());
    handle = dumper.add_plugin(plugin);
  }
  EXPECT_EQ(plugin.use_count(), 1);
  handle.remove();
}

}  // namespace
}  // namespace dbg
