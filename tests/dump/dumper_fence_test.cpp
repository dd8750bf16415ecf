// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about foreign code inside a dump (interceptor, callable) and about streams that a dump must not touch.
#include <ATen/ATen.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "dump/dumper_fixture.h"
#include "dump/stream_capture.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class DumperFenceTest : public test::DumperFixture {};

// ---- Interceptor ----

TEST_F(DumperFenceTest, InterceptorRunsBetweenFilterAndRecord) {
  Dumper dumper(config({"filter=layer_id == 1"}));
  const auto capture = dumper.capture_output();
  const c10::IValue extras(std::string("hint"));
  std::vector<std::string> seen;
  dumper.set_ctx({{"phase", "decode"}});
  dumper.step();
  dumper.set_interceptor([&](const Interception& what) {
    seen.push_back(std::string(what.tags.find("name")->view().text()));
    EXPECT_EQ(*what.tags.find("recompute_status"), TagValue("disabled"));
    EXPECT_EQ(*what.tags.find("layer_id"), TagValue(1));
    EXPECT_EQ(*what.tags.find("phase"), TagValue("decode"));
    EXPECT_EQ(what.step, 1);
    ASSERT_NE(what.extras, nullptr);
    EXPECT_EQ(what.extras->toStringRef(), "hint");
    what.value.toTensor().fill_(7);
  });
  DumpOptions options;
  options.grafter_extras = &extras;
  const at::Tensor kept = at::zeros({2});
  const at::Tensor rejected = at::zeros({2});
  dumper.dump("rejected", rejected, {{"layer_id", 0}}, options);
  dumper.dump("kept", kept, {{"layer_id", 1}}, options);
  EXPECT_THAT(seen, ElementsAre("kept"));
  EXPECT_TRUE(at::equal(rejected, at::zeros({2})));
  EXPECT_TRUE(at::equal(kept, at::full({2}, 7.0)));
  EXPECT_TRUE(at::equal(capture.records().at("kept").at(0).value.toTensor(), at::full({2}, 7.0)));
  EXPECT_EQ(dumper.state().counters.interceptions, 1u);

  dumper.set_interceptor({});
  dumper.dump("kept", at::zeros({2}), {{"layer_id", 1}});
  EXPECT_EQ(dumper.state().counters.interceptions, 1u);
}

TEST_F(DumperFenceTest, ThrowingInterceptorCostsTheGraftAndNotTheRecord) {
  Dumper dumper(config());
  dumper.set_interceptor([](const Interception&) { throw std::runtime_error("peer lost"); });
  for (int i = 0; i < 3; ++i) dumper.dump("x", at::ones({2}));
  EXPECT_EQ(paths().size(), 3u);
  EXPECT_EQ(dumper.state().counters.written, 3u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
  EXPECT_EQ(dumper.state().counters.interceptor_faults, 3u);
  EXPECT_GE(log_.count("peer lost"), 1u);
}

// An interceptor may dump what it derived; called for that dump too, it would run until the stack ends.
TEST_F(DumperFenceTest, InterceptorThatDumpsIsNotCalledForItsOwnDump) {
  Dumper dumper(config());
  int calls = 0;
  dumper.set_interceptor([&](const Interception&) {
    if (++calls < 1000) dumper.dump("derived", at::ones({1}));
  });
  for (int i = 0; i < 3; ++i) dumper.dump("x", at::ones({2}));
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(dumper.state().counters.interceptions, 3u);
  EXPECT_THAT(file_tags("name"), ElementsAre("derived", "x", "derived", "x", "derived", "x"));
  EXPECT_EQ(log_.count("called from inside the interceptor"), 1u);
}

TEST_F(DumperFenceTest, PluginThatDumpsIsNotAskedForItsOwnDump) {
  Dumper dumper(config());
  struct Dumping : FrameworkPlugin {
    explicit Dumping(Dumper& given) : dumper(given) {}
    std::string name() const override { return "dumping"; }
    ParallelState collect_parallel_info() override {
      if (++calls < 1000) dumper.dump("inner", at::ones({1}));
      return ParallelState().set("tp", 1, 2);
    }
    Dumper& dumper;
    int calls = 0;
  };
  const auto plugin = std::make_shared<Dumping>(dumper);
  dumper.add_plugin(plugin);
  dumper.dump("x", at::ones({2}));
  EXPECT_EQ(plugin->calls, 1);
  ASSERT_EQ(paths().size(), 2u);
  EXPECT_TRUE(test::has_meta(test::read_file(paths().at(0)), "megatron_parallel_info"));
  EXPECT_FALSE(test::has_meta(test::read_file(paths().at(1)), "megatron_parallel_info"));
  EXPECT_EQ(log_.count("called from inside a plugin"), 1u);
}

// ---- Faults ----

TEST_F(DumperFenceTest, ThrowingCallableIsCountedAndTheRunGoesOn) {
  Dumper dumper(config());
  for (int i = 0; i < 100; ++i) dumper.dump("x", []() -> at::Tensor { throw std::runtime_error("no value"); });
  dumper.dump("y", at::ones({2}));
  EXPECT_EQ(dumper.state().counters.failed, 100u);
  EXPECT_EQ(dumper.state().counters.written, 1u);
  EXPECT_THAT(file_tags("name"), ElementsAre("y"));
  EXPECT_GE(log_.count("no value"), 1u);
  EXPECT_LE(log_.count("no value"), 8u) << "a line for each of 100 equal faults buries the run's own log";
}

TEST_F(DumperFenceTest, OneKindOfFaultDoesNotHideAnother) {
  Dumper dumper(config());
  for (int i = 0; i < 5; ++i) dumper.dump("x", []() -> at::Tensor { throw std::runtime_error("no value"); });
  dumper.set_interceptor([](const Interception&) { throw std::runtime_error("peer lost"); });
  dumper.dump("y", at::ones({2}));
  EXPECT_EQ(log_.count("peer lost"), 1u);
}

TEST_F(DumperFenceTest, StrictThrowsToTheCaller) {
  Dumper dumper(config({"strict=true"}));
  EXPECT_THROW(dumper.dump("x", []() -> at::Tensor { throw std::out_of_range("no value"); }), std::out_of_range);
  dumper.set_interceptor([](const Interception&) { throw std::domain_error("peer lost"); });
  EXPECT_THROW(dumper.dump("x", at::ones({2})), std::domain_error);
  EXPECT_EQ(dumper.state().counters.failed, 2u);
}

// ---- A CUDA stream that is being captured ----

class CapturingStream {
 public:
  CapturingStream() {
    set_stream_capture_probe([]() noexcept { return true; });
  }
  ~CapturingStream() { set_stream_capture_probe(nullptr); }
};

TEST_F(DumperFenceTest, NothingIsTouchedWhileAStreamIsCaptured) {
  Dumper dumper(config({"enable_grad=true", "enable_output_console=true", "filter=name != 'rejected'"}));
  int touched = 0;
  int intercepted = 0;
  // Whoever waits for others at each dump must know of this one; but not its value.
  dumper.set_interceptor([&](const Interception& seen) {
    ++intercepted;
    if (!seen.value.isNone()) ++touched;
  });
  {
    const CapturingStream capturing;
    for (int i = 0; i < 5; ++i) {
      dumper.dump("x", [&] {
        ++touched;
        return at::ones({2});
      });
    }
    dumper.dump("y", at::ones({2}));
    dumper.dump("rejected", at::ones({2}));
  }
  EXPECT_EQ(touched, 0);
  EXPECT_EQ(intercepted, 6);
  EXPECT_THAT(paths(), IsEmpty());
  EXPECT_EQ(dumper.state().counters.dropped, 6u);
  EXPECT_EQ(dumper.state().counters.filtered, 1u);
  EXPECT_EQ(dumper.state().dump_index, 0);
  EXPECT_EQ(log_.lines().size(), 1u);
  EXPECT_EQ(log_.count("captured"), 1u);

  dumper.dump("after", at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("after"));
}

TEST_F(DumperFenceTest, GradientsDuringACaptureAreDroppedWithAWarning) {
  Dumper dumper(config({"enable_grad=true"}));
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  dumper.dump("x", leaf);
  const at::Tensor sum = (leaf * 2).sum();
  {
    const CapturingStream capturing;
    sum.backward();
  }
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({2}, 2.0)));
  EXPECT_THAT(file_tags("name"), ElementsAre("x"));
  EXPECT_EQ(dumper.state().counters.dropped, 1u);
  EXPECT_EQ(log_.count("captured"), 1u);
}

}  // namespace
}  // namespace dbg
