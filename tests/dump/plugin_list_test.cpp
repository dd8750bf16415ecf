// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about asking several plugins: in order, first answer wins, each behind the fence.
#include "dump/plugin_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Fault {
  std::string plugin;
  std::string question;
  std::string cause;
  bool first;
};

class PluginListTest : public testing::Test {
 protected:
  std::shared_ptr<test::FakePlugin> add(const std::string& name) {
    auto plugin = std::make_shared<test::FakePlugin>();
    plugin->plugin_name = name;
    list_ = list_->with(++last_id_, plugin);
    return plugin;
  }
  PluginFaultHandler on_fault() {
    return [this](const std::string& plugin, std::string_view question, const std::string& cause, bool first) {
      faults_.push_back({plugin, std::string(question), cause, first});
    };
  }

  std::shared_ptr<const PluginList> list_ = std::make_shared<const PluginList>();
  std::uint64_t last_id_ = 0;
  std::vector<Fault> faults_;
};

TEST_F(PluginListTest, FirstAnswerWinsPerAxis) {
  add("empty");
  add("first")->state.set("tp", 1, 2);
  add("second")->state.set("tp", 3, 4).set("pp", 0, 2);
  const ParallelInfo info = list_->collect_parallel_info(on_fault());
  EXPECT_EQ(info.merged, ParallelState().set("tp", 1, 2).set("pp", 0, 2));
  ASSERT_EQ(info.by_meta_name.size(), 1u);
  EXPECT_EQ(info.by_meta_name[0].first, "megatron");
  EXPECT_EQ(info.by_meta_name[0].second, info.merged);
}

TEST_F(PluginListTest, MetaNamesKeepTheirOwnAxes) {
  add("one")->state.set("tp", 1, 2);
  auto other = add("two");
  other->state.set("tp", 0, 4);
  other->meta_name = "own";
  const ParallelInfo info = list_->collect_parallel_info(on_fault());
  EXPECT_EQ(info.merged.find("tp")->rank, 1);
  ASSERT_EQ(info.by_meta_name.size(), 2u);
  EXPECT_EQ(info.by_meta_name[1].first, "own");
  EXPECT_EQ(info.by_meta_name[1].second.find("tp")->size, 4);
}

TEST_F(PluginListTest, FirstRecomputeAnswerWins) {
  EXPECT_EQ(list_->recompute_status(on_fault()), RecomputeStatus::disabled);
  add("silent");
  add("first")->recompute = RecomputeStatus::recompute;
  add("second")->recompute = RecomputeStatus::original;
  EXPECT_EQ(list_->recompute_status(on_fault()), RecomputeStatus::recompute);
}

TEST_F(PluginListTest, EachQuestionIsFencedAndWarnsOnce) {
  auto broken = add("broken");
  broken->throws = true;
  auto good = add("good");
  good->state.set("tp", 1, 2);
  good->recompute = RecomputeStatus::original;
  good->rename = [](const ModelInfo&, const std::string& name) { return name + "!"; };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(list_->collect_parallel_info(on_fault()).merged.find("tp")->rank, 1);
    EXPECT_EQ(list_->recompute_status(on_fault()), RecomputeStatus::original);
    EXPECT_EQ(list_->transform_model_param_name(ModelInfo(), "a", on_fault()), "a!");
  }
  ASSERT_EQ(faults_.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(faults_[i].plugin, "broken");
    EXPECT_EQ(faults_[i].first, i < 3) << i;
  }
  EXPECT_EQ(faults_[0].question, "collect_parallel_info");
  EXPECT_EQ(faults_[0].cause, "no groups yet");
  EXPECT_EQ(faults_[1].question, "recompute_status");
  EXPECT_EQ(faults_[2].question, "transform_model_param_name");
}

TEST_F(PluginListTest, LayerIdIsTheFirstAnswerElseThePathsNumber) {
  EXPECT_EQ(list_->layer_id_of("model.layers.3.mlp", on_fault()), 3);
  EXPECT_EQ(list_->layer_id_of("model.embed", on_fault()), std::nullopt);
  add("silent");
  add("broken")->throws = true;
  EXPECT_EQ(list_->layer_id_of("model.layers.3.mlp", on_fault()), 3);
  EXPECT_EQ(list_->layer_id_of("model.layers.3.mlp", on_fault()), 3);
  ASSERT_EQ(faults_.size(), 2u);
  EXPECT_EQ(faults_[0].question, "layer_id_of");
  EXPECT_EQ(faults_[0].cause, "no layers");
  EXPECT_TRUE(faults_[0].first);
  EXPECT_FALSE(faults_[1].first);
  add("first")->layer_id = 15;
  add("second")->layer_id = 16;
  EXPECT_EQ(list_->layer_id_of("model.layers.3.mlp", on_fault()), 15);
}

// Throws everywhere, even when asked for its name, and what is not a std::exception.
struct Hostile : FrameworkPlugin {
  std::string name() const override { throw 1; }
  ParallelState collect_parallel_info() override { throw 2; }
};

TEST_F(PluginListTest, PluginWhoseNameThrowsIsFencedToo) {
  list_ = list_->with(1, std::make_shared<Hostile>());
  EXPECT_TRUE(list_->collect_parallel_info(on_fault()).merged.empty());
  ASSERT_EQ(faults_.size(), 1u);
  EXPECT_TRUE(faults_[0].first);
}

// Says ranks, then fails to say where they belong: no half of its answer may stay.
struct HalfBroken : test::FakePlugin {
  std::string parallel_info_name() const override { throw std::runtime_error("no name"); }
};

TEST_F(PluginListTest, HalfAnAnswerIsNone) {
  auto half = std::make_shared<HalfBroken>();
  half->state.set("tp", 1, 2);
  list_ = list_->with(1, half);
  const ParallelInfo info = list_->collect_parallel_info(on_fault());
  EXPECT_TRUE(info.merged.empty());
  EXPECT_THAT(info.by_meta_name, IsEmpty());
  EXPECT_EQ(faults_.size(), 1u);
}

TEST_F(PluginListTest, ListsAreImmutable) {
  const auto before = list_;
  add("one");
  EXPECT_TRUE(before->empty());
  EXPECT_FALSE(list_->empty());
  const auto after = list_->without(1);
  EXPECT_TRUE(after->empty());
  EXPECT_FALSE(list_->empty());
  EXPECT_FALSE(list_->without(99)->empty());
}

}  // namespace
}  // namespace dbg
