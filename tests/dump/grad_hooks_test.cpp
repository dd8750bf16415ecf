// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about gradients that arrive later: whose they are, which step they belong to, how often they are recorded.
#include "dump/grad_hooks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using test::has_meta;
using test::meta_of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class GradHooksTest : public test::DumperFixture {
 protected:
  DumperConfig grads(const std::vector<std::string>& overrides = {}) const {
    return config({"enable_grad=true"}).with_overrides(overrides);
  }

  static std::size_t hooks_of(const at::Tensor& tensor) {
    if (torch::autograd::impl::get_autograd_meta(tensor) == nullptr) return 0;
    return torch::autograd::impl::hooks(tensor).size();
  }
};

at::Tensor leaf_of(double value) {
  return at::full({3}, value).requires_grad_();
}

TEST_F(GradHooksTest, GradientIsRecordedAfterBackwardWithItsExactContent) {
  Dumper dumper(grads());
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(2);
  const at::Tensor hidden = leaf * leaf;
  dumper.dump("leaf", leaf);
  dumper.dump("hidden", hidden);
  EXPECT_EQ(capture.records().count("grad__leaf"), 0u);
  (hidden * 3).sum().backward();
  const auto records = capture.records();
  EXPECT_TRUE(at::equal(records.at("grad__leaf").at(0).value.toTensor(), at::full({3}, 12.0)));
  EXPECT_TRUE(at::equal(records.at("grad__hidden").at(0).value.toTensor(), at::full({3}, 3.0)));
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({3}, 12.0)));
}

TEST_F(GradHooksTest, ValueAndGradientEachAlone) {
  for (const bool value : {false, true}) {
    for (const bool grad : {false, true}) {
      Dumper dumper(config(
          {std::string("enable_value=") + (value ? "1" : "0"), std::string("enable_grad=") + (grad ? "1" : "0")}));
      const auto capture = dumper.capture_output();
      const at::Tensor leaf = leaf_of(1);
      dumper.dump("x", leaf);
      leaf.sum().backward();
      EXPECT_EQ(capture.records().count("x"), value ? 1u : 0u);
      EXPECT_EQ(capture.records().count("grad__x"), grad ? 1u : 0u);
    }
  }
}

TEST_F(GradHooksTest, OnlyTensorsThatRequireGradAreWatched) {
  Dumper dumper(grads());
  const at::Tensor plain = at::ones({3});
  dumper.dump("plain", plain);
  dumper.dump("number", 3);
  dumper.dump("list", std::vector<at::Tensor>{leaf_of(1)});
  dumper.dump("undefined", at::Tensor());
  EXPECT_EQ(hooks_of(plain), 0u);
  EXPECT_THAT(file_tags("name"), ElementsAre("plain", "number", "list"));
}

TEST_F(GradHooksTest, CallablesTensorIsWatched) {
  Dumper dumper(grads());
  const at::Tensor leaf = leaf_of(1);
  dumper.dump("x", [&] { return leaf; });
  leaf.sum().backward();
  EXPECT_THAT(file_tags("name"), ElementsAre("x", "grad__x"));
}

TEST_F(GradHooksTest, RecordHasStepContextAndTagsOfDumpTime) {
  Dumper dumper(grads());
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  dumper.step();
  dumper.set_ctx({{"phase", "prefill"}});
  std::string key = "layer";
  std::string text = "seven";
  dumper.dump("x", leaf, {{key, text}});
  key = "dirty";
  text = "dirty";
  dumper.step();
  dumper.set_ctx({{"phase", "decode"}, {"late", 1}});
  leaf.sum().backward();
  const DumpRecord record = capture.records().at("grad__x").at(0);
  EXPECT_EQ(meta_of(record, "step").toInt(), 1);
  EXPECT_EQ(meta_of(record, "phase").toStringRef(), "prefill");
  EXPECT_EQ(meta_of(record, "layer").toStringRef(), "seven");
  EXPECT_FALSE(has_meta(record, "late"));
  EXPECT_EQ(meta_of(record, "name").toStringRef(), "grad__x");
}

// As the Python twin's, whose comparator pairs records by equal tags: whether the value was computed anew is nothing
// that its gradient could tell.
TEST_F(GradHooksTest, FileNameAndMetaAreTheValuesWithoutTheRecomputation) {
  Dumper dumper(grads());
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->recompute = RecomputeStatus::recompute;
  dumper.add_plugin(plugin);
  const at::Tensor leaf = leaf_of(1);
  dumper.dump("x", leaf, {{"layer_id", 3}});
  dumper.set_ctx({{"phase", "prefill"}});
  dumper.dump("y", leaf, {{"layer_id", 3}});
  leaf.sum().backward();
  EXPECT_THAT(file_names(),
              ElementsAre("step=0___rank=0___dump_index=1___name=x___recompute_status=recompute___layer_id=3.pt",
                          "step=0___rank=0___dump_index=2___name=y___recompute_status=recompute___layer_id=3___"
                          "phase=prefill.pt",
                          "step=0___rank=0___dump_index=3___name=grad__x___layer_id=3.pt",
                          "step=0___rank=0___dump_index=4___name=grad__y___layer_id=3___phase=prefill.pt"));
  const auto keys_at = [this](std::size_t i) {
    std::vector<std::string> keys;
    for (const auto& entry : test::read_file(paths().at(i)).meta.toGenericDict()) {
      keys.push_back(entry.key().toStringRef());
    }
    return keys;
  };
  EXPECT_THAT(keys_at(0),
              UnorderedElementsAre("step", "rank", "dump_index", "name", "recompute_status", "layer_id", "world_rank",
                                   "world_size", "recompute_pseudo_rank", "recompute_pseudo_size", "dbg_version"));
  EXPECT_THAT(keys_at(2), UnorderedElementsAre("step", "rank", "dump_index", "name", "layer_id", "world_rank",
                                               "world_size", "dbg_version"));
}

TEST_F(GradHooksTest, SaveFalseHoldsForTheGradientToo) {
  Dumper dumper(grads());
  DumpOptions options;
  options.save = false;
  const at::Tensor leaf = leaf_of(1);
  dumper.dump("x", leaf, {}, options);
  leaf.sum().backward();
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(GradHooksTest, SwitchingOffBetweenForwardAndBackwardIsHonoured) {
  Dumper dumper(grads());
  const at::Tensor leaf = leaf_of(1);
  dumper.dump("x", leaf);
  dumper.configure({"enable=false"});
  leaf.sum().backward();
  dumper.configure({"enable=true", "enable_grad=false"});
  leaf.sum().backward();
  EXPECT_THAT(file_tags("name"), ElementsAre("x"));
  dumper.configure({"enable_grad=true", "filter=name != 'x'"});
  leaf.sum().backward();
  EXPECT_THAT(file_tags("name"), ElementsAre("x"));
  EXPECT_EQ(dumper.state().counters.filtered, 1u);
  dumper.configure({"filter="});
  leaf.sum().backward();
  EXPECT_THAT(file_tags("name"), ElementsAre("x", "grad__x"));
}

TEST_F(GradHooksTest, FilterSpeaksOfTheValueAndNotOfItsGradient) {
  for (const char* filter : {"filter=name == 'grad__x'", "filter=name == 'x'"}) {
    Dumper dumper(grads({filter}));
    const at::Tensor leaf = leaf_of(1);
    dumper.dump("x", leaf);
    leaf.sum().backward();
    EXPECT_EQ(dumper.state().counters.written, filter == std::string("filter=name == 'x'") ? 2u : 0u) << filter;
  }
  EXPECT_THAT(file_tags("name"), ElementsAre("x", "grad__x"));
}

TEST_F(GradHooksTest, FilterAtBackwardSeesTheStepOfDumpTime) {
  Dumper dumper(grads({"filter=step == 0"}));
  const at::Tensor leaf = leaf_of(1);
  dumper.dump("x", leaf);
  dumper.step();
  leaf.sum().backward();
  EXPECT_THAT(file_tags("name"), UnorderedElementsAre("x", "grad__x"))
      << "the record is of step 0, as its value's: a filter must not part the two";
}

TEST_F(GradHooksTest, RetainedGraphGivesARecordEachBackward) {
  Dumper dumper(grads());
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  const at::Tensor hidden = leaf * 2;
  dumper.dump("leaf", leaf);
  dumper.dump("hidden", hidden);
  const at::Tensor sum = hidden.sum();
  sum.backward({}, true);
  sum.backward();
  EXPECT_EQ(capture.records().at("grad__leaf").size(), 2u);
  EXPECT_EQ(capture.records().at("grad__hidden").size(), 2u);
  EXPECT_TRUE(at::equal(capture.records().at("grad__leaf").at(1).value.toTensor(), at::full({3}, 2.0)))
      << "what arrives, not what has been accumulated";
}

TEST_F(GradHooksTest, LeafDumpedManyTimesKeepsOneHook) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  for (int step = 0; step < 50; ++step) {
    dumper.dump("x", leaf);
    leaf.sum().backward();
    dumper.step();
  }
  EXPECT_EQ(hooks_of(leaf), 1u);
  const auto records = capture.records().at("grad__x");
  ASSERT_EQ(records.size(), 50u) << "one a step, not one more a step";
  for (int step = 0; step < 50; ++step) {
    EXPECT_EQ(meta_of(records.at(static_cast<std::size_t>(step)), "step").toInt(), step);
  }
}

TEST_F(GradHooksTest, LeafUnderAnotherNameEachStepIsRecordedOnceAStep) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  for (int step = 0; step < 20; ++step) {
    dumper.dump("w_" + std::to_string(step), leaf);
    leaf.sum().backward();
    dumper.step();
  }
  const auto records = capture.records();
  EXPECT_EQ(records.size(), 20u);
  for (const auto& [name, all] : records) EXPECT_EQ(all.size(), 1u) << name;
}

// A gradient of step 3 is no gradient of step 0, though the leaf was dumped in that step only.
TEST_F(GradHooksTest, LeafDumpedInOneStepHasNoGradientsOfLaterSteps) {
  Dumper dumper(grads({"filter=step == 0", "enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  for (int step = 0; step < 4; ++step) {
    dumper.dump("x", leaf);
    (leaf * (step + 1)).sum().backward();
    dumper.step();
  }
  const auto records = capture.records().at("grad__x");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(meta_of(records.at(0), "step").toInt(), 0);
  EXPECT_TRUE(at::equal(records.at(0).value.toTensor(), at::full({3}, 1.0)));
}

TEST_F(GradHooksTest, StepBeforeBackwardBringsTheGradientOfTheDumpAndNoOther) {
  Dumper dumper(grads({"filter=step == 0", "enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  for (int step = 0; step < 4; ++step) {
    dumper.dump("x", leaf);
    const at::Tensor loss = (leaf * (step + 1)).sum();
    dumper.step();
    loss.backward();
  }
  const auto records = capture.records().at("grad__x");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(at::equal(records.at(0).value.toTensor(), at::full({3}, 1.0)));
}

TEST_F(GradHooksTest, AccumulationWithinOneStepRecordsEachGradient) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  for (int step = 0; step < 2; ++step) {
    dumper.dump("x", leaf);
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) leaf.sum().backward();
    dumper.step();
  }
  const auto records = capture.records().at("grad__x");
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(meta_of(records.at(2), "step").toInt(), 0);
  EXPECT_EQ(meta_of(records.at(3), "step").toInt(), 1);
}

TEST_F(GradHooksTest, GraphKeptForLaterStepsGivesNoMoreGradientsOfThisOne) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor hidden = leaf_of(1) * 2;
  dumper.dump("hidden", hidden);
  const at::Tensor sum = hidden.sum();
  for (int step = 0; step < 3; ++step) {
    sum.backward({}, true);
    dumper.step();
  }
  EXPECT_EQ(capture.records().at("grad__hidden").size(), 1u);
}

TEST_F(GradHooksTest, LeafUnderTwoNamesOrTagsIsRecordedUnderEach) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  dumper.dump("x", leaf, {{"use", 1}});
  dumper.dump("x", leaf, {{"use", 2}});
  dumper.dump("y", leaf);
  leaf.sum().backward();
  EXPECT_EQ(capture.records().at("grad__x").size(), 2u);
  EXPECT_EQ(capture.records().at("grad__y").size(), 1u);
}

TEST_F(GradHooksTest, ResetForgetsWhatEarlierStepsWaitedFor) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  const at::Tensor leaf = leaf_of(1);
  for (int step = 0; step < 3; ++step) {
    dumper.dump("x", leaf, {{"iteration", step}});
    leaf.sum().backward();
    dumper.step();
  }
  dumper.reset();
  dumper.dump("x", leaf, {{"iteration", 100}});
  leaf.sum().backward();
  const auto records = capture.records().at("grad__x");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(meta_of(records.at(3), "iteration").toInt(), 100);
}

TEST_F(GradHooksTest, NewLeafAtAnOldAddressIsWatched) {
  Dumper dumper(grads({"enable_value=false"}));
  const auto capture = dumper.capture_output();
  for (int i = 0; i < 200; ++i) {
    const at::Tensor leaf = leaf_of(1);
    dumper.dump("x", leaf);
    leaf.sum().backward();
  }
  EXPECT_EQ(capture.records().at("grad__x").size(), 200u);
}

TEST_F(GradHooksTest, GradientAfterTheDumpersEndIsLeftAlone) {
  const at::Tensor leaf = leaf_of(1);
  const at::Tensor hidden = leaf * 2;
  {
    Dumper dumper(grads({"enable_value=false"}));
    dumper.dump("leaf", leaf);
    dumper.dump("hidden", hidden);
  }
  hidden.sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({3}, 2.0)));
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(GradHooksTest, RecordedTensorIsNotKeptAlive) {
  Dumper dumper(grads());
  at::Tensor leaf = leaf_of(1);
  dumper.dump("x", leaf);
  EXPECT_EQ(leaf.use_count(), 1u);
  const at::Tensor hidden = leaf * 2;
  const auto before = hidden.use_count();
  dumper.dump("hidden", hidden);
  EXPECT_EQ(hidden.use_count(), before);
}

// ---- Threads ----

TEST_F(GradHooksTest, HookSpeaksForTheParticipantThatDumped) {
  Dumper dumper(grads());
  at::Tensor sum;
  {
    const auto participant = std::make_shared<const Participant>(3, 4);
    const ParticipantScope scope(participant);
    dumper.step();
    const at::Tensor leaf = leaf_of(1);
    dumper.dump("x", leaf);
    sum = leaf.sum();
  }
  std::thread([&] {
    const ParticipantScope scope(std::make_shared<const Participant>(1, 4));
    sum.backward();
    EXPECT_EQ(current_participant()->rank(), 1);
    EXPECT_EQ(dumper.state().dump_index, 0) << "not this rank's record";
  }).join();
  ASSERT_EQ(files().size(), 2u);
  EXPECT_THAT(file_tags("rank"), ElementsAre("3", "3"));
  EXPECT_THAT(file_tags("step"), ElementsAre("1", "1"));
  EXPECT_THAT(file_tags("dump_index"), ElementsAre("1", "2"));
}

TEST_F(GradHooksTest, PluginsSeeTheParticipantThatDumped) {
  Dumper dumper(grads({"include_parallel_rank_in_filename=true"}));
  struct ByRank : FrameworkPlugin {
    std::string name() const override { return "by_rank"; }
    ParallelState collect_parallel_info() override {
      return ParallelState().set("tp", current_participant()->rank(), 4);
    }
  };
  dumper.add_plugin(std::make_shared<ByRank>());
  at::Tensor sum;
  {
    const ParticipantScope scope(std::make_shared<const Participant>(2, 4));
    const at::Tensor leaf = leaf_of(1);
    dumper.dump("x", leaf);
    sum = leaf.sum();
  }
  std::thread([&] { sum.backward(); }).join();
  EXPECT_THAT(file_tags("tp_rank"), ElementsAre("2", "2"));
}

TEST_F(GradHooksTest, LeafSharedByTwoRanksIsRecordedForBoth) {
  Dumper dumper(grads({"enable_value=false"}));
  const at::Tensor leaf = leaf_of(1);
  for (int rank = 0; rank < 2; ++rank) {
    const ParticipantScope scope(std::make_shared<const Participant>(rank, 2));
    dumper.dump("x", leaf);
  }
  leaf.sum().backward();
  EXPECT_THAT(file_tags("rank"), ElementsAre("0", "1"));
}

}  // namespace
}  // namespace dbg
