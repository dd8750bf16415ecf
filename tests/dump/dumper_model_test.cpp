// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about dump_model(): which models it takes, what each parameter is called, and what the report says.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dump/dumper_fixture.h"
#include "dump/stream_capture.h"

namespace dbg {
namespace {

using test::has_meta;
using test::meta_of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// A model of torch's own: two layers and a head.
struct TinyImpl : torch::nn::Module {
  TinyImpl() {
    up = register_module("up", torch::nn::Linear(2, 3));
    down = register_module("down", torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)));
    scale = register_parameter("scale", at::ones({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return down(up(x)) * scale; }
  torch::nn::Linear up{nullptr};
  torch::nn::Linear down{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Tiny);

// A module base that is not torch's: a plain list of names and tensors.
class OwnModule {
 public:
  explicit OwnModule(std::vector<std::pair<std::string, at::Tensor>> parameters) : parameters_(std::move(parameters)) {}
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const { return parameters_; }

 private:
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
};

// `count` layers `layers.0` ..., each one parameter that holds `first + index`.
OwnModule stage_of(int first, int count) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.emplace_back("layers." + std::to_string(i) + ".weight", at::full({2}, first + i));
  }
  return OwnModule(std::move(parameters));
}

class DumperModelTest : public test::DumperFixture {
 protected:
  DumperConfig values(const std::vector<std::string>& overrides = {}) const {
    return config({"enable_model_value=true"}).with_overrides(overrides);
  }

  template <class Model>
  std::vector<std::string> names_of(Model&& model, const DumpModelOptions& options = {}) {
    Dumper dumper(values());
    const auto capture = dumper.capture_output();
    dumper.dump_model(model, options);
    return names_in(capture.records());
  }

  static std::vector<std::string> names_in(const CaptureScope::Records& records) {
    std::vector<std::string> names;
    for (const auto& [name, all] : records) {
      for (std::size_t i = 0; i < all.size(); ++i) names.push_back(name);
    }
    return names;
  }
};

const std::vector<std::string> kTinyNames{"param__down.weight", "param__scale", "param__up.bias", "param__up.weight"};

// ---- Which models ----

TEST_F(DumperModelTest, TakesModulesHoldersAndPointers) {
  Tiny holder;
  auto unique = std::make_unique<TinyImpl>();
  auto shared = std::make_shared<TinyImpl>();
  TinyImpl* raw = shared.get();
  const torch::nn::Module& base = *shared;
  std::shared_ptr<torch::nn::Module> shared_base = shared;
  EXPECT_EQ(names_of(holder), kTinyNames);
  EXPECT_EQ(names_of(unique), kTinyNames);
  EXPECT_EQ(names_of(shared), kTinyNames);
  EXPECT_EQ(names_of(raw), kTinyNames);
  EXPECT_EQ(names_of(*raw), kTinyNames);
  EXPECT_EQ(names_of(base), kTinyNames);
  EXPECT_EQ(names_of(shared_base), kTinyNames);
  EXPECT_EQ(names_of(std::as_const(unique)), kTinyNames);
  EXPECT_EQ(names_of(&holder), kTinyNames) << "a pointer to a holder";
}

TEST_F(DumperModelTest, TakesAnOwnModuleClass) {
  const OwnModule own({{"b", at::ones({1})}, {"a.c", at::zeros({2})}});
  EXPECT_THAT(names_of(own), ElementsAre("param__a.c", "param__b"));
}

TEST_F(DumperModelTest, NullPointersCostAWarning) {
  Dumper dumper(values());
  std::unique_ptr<OwnModule> null;
  OwnModule own({{"a", at::ones({1})}});
  DumpModelOptions options;
  options.extra_modules.emplace_back("extra", null);
  EXPECT_EQ(dumper.dump_model(null).seen, 0);
  EXPECT_EQ(dumper.dump_model(Tiny(nullptr)).seen, 0);
  EXPECT_EQ(dumper.dump_model(own, options).written, 1);
  EXPECT_EQ(log_.count("null"), 3u);
}

// ---- What is written ----

TEST_F(DumperModelTest, ValuesAndGradientsEachAlone) {
  Tiny model;
  model->forward(at::ones({4, 2})).sum().backward();
  model->scale.mutable_grad() = at::Tensor();
  const auto grad = [](const std::string& name) { return "grad__" + name; };
  for (const bool value : {false, true}) {
    for (const bool gradient : {false, true}) {
      Dumper dumper(config({std::string("enable_model_value=") + (value ? "1" : "0"),
                            std::string("enable_model_grad=") + (gradient ? "1" : "0")}));
      const auto capture = dumper.capture_output();
      const DumpModelReport report = dumper.dump_model(model);
      const auto records = capture.records();
      for (const std::string& name : kTinyNames) {
        EXPECT_EQ(records.count(name), value ? 1u : 0u) << name;
        EXPECT_EQ(records.count(grad(name)), gradient && name != "param__scale" ? 1u : 0u) << name;
      }
      EXPECT_EQ(report.seen, 4);
      EXPECT_EQ(report.written, value ? 4 : 0);
      EXPECT_EQ(report.grads_written, gradient ? 3 : 0);
      EXPECT_EQ(report.without_grad, gradient ? 1 : 0);
      EXPECT_EQ(report.filtered, 0);
      EXPECT_EQ(report.failed, 0);
      EXPECT_THAT(report.children, UnorderedElementsAre("up", "down", "scale"));
      if (value) {
        EXPECT_TRUE(at::equal(records.at("param__up.weight").at(0).value.toTensor(), model->up->weight));
      }
      if (gradient) {
        EXPECT_TRUE(at::equal(records.at("grad__param__up.weight").at(0).value.toTensor(), model->up->weight.grad()));
      }
    }
  }
}

TEST_F(DumperModelTest, SwitchesOfDumpAndOfDumpModelAreIndependent) {
  Dumper dumper(config());
  dumper.dump_model(Tiny());
  EXPECT_THAT(paths(), IsEmpty()) << "enable_value is of dump()";
  dumper.configure({"enable_model_value=true", "enable_value=false"});
  dumper.dump("x", at::ones({2}));
  EXPECT_THAT(paths(), IsEmpty());
  dumper.dump_model(Tiny());
  EXPECT_EQ(paths().size(), 4u);
}

TEST_F(DumperModelTest, FilterActsOnValueAndGradient) {
  Tiny model;
  model->forward(at::ones({4, 2})).sum().backward();
  Dumper dumper(values({"enable_model_grad=true", "filter=search('up', name)"}));
  const DumpModelReport report = dumper.dump_model(model);
  EXPECT_THAT(file_tags("name"), UnorderedElementsAre("param__up.weight", "grad__param__up.weight", "param__up.bias",
                                                      "grad__param__up.bias"));
  EXPECT_EQ(report.seen, 4);
  EXPECT_EQ(report.filtered, 2);
  EXPECT_EQ(report.written, 2);
  EXPECT_EQ(report.grads_written, 2);

  dumper.configure({"filter=name.startswith('grad__')"});
  EXPECT_EQ(dumper.dump_model(model).filtered, 4) << "a gradient goes with its parameter, whose name is asked for";
}

TEST_F(DumperModelTest, PrefixTagsAndSaveAreTaken) {
  Dumper dumper(values());
  DumpModelOptions options;
  options.name_prefix = "weights";
  options.tags.set("phase", "init");
  dumper.dump_model(OwnModule({{"a", at::ones({1})}}), options);
  EXPECT_THAT(file_tags("name"), ElementsAre("weights__a"));
  EXPECT_THAT(file_tags("phase"), ElementsAre("init"));
  options.save = false;
  EXPECT_EQ(dumper.dump_model(OwnModule({{"a", at::ones({1})}}), options).written, 0);
  EXPECT_EQ(paths().size(), 1u);
}

TEST_F(DumperModelTest, ParametersThatCannotBeWrittenAreInTheReport) {
  Dumper dumper(values());
  OwnModule own({{"meta", at::empty({3}, at::TensorOptions().device(at::kMeta))},
                 {"undefined", at::Tensor()},
                 {"good", at::ones({1})}});
  const DumpModelReport report = dumper.dump_model(own);
  EXPECT_EQ(report.seen, 3);
  EXPECT_EQ(report.written, 1);
  EXPECT_EQ(report.failed, 2) << "seen == written + filtered + failed";
  EXPECT_EQ(dumper.state().counters.skipped, 2u);
}

TEST_F(DumperModelTest, GradientsThatCannotBeWrittenAreInTheReport) {
  at::Tensor weight = at::ones({2}).requires_grad_();
  weight.mutable_grad() = at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8);
  OwnModule own({{"w", weight}});
  Dumper dumper(config({"enable_model_grad=true"}));
  const DumpModelReport report = dumper.dump_model(own);
  EXPECT_EQ(report.seen, 1);
  EXPECT_EQ(report.grads_written, 0);
  EXPECT_EQ(report.grads_failed, 1);
  EXPECT_EQ(report.failed, 0);
}

// Both sums, whatever is on and whatever goes wrong.
TEST_F(DumperModelTest, TheReportAddsUp) {
  at::Tensor with_grad = at::ones({2}).requires_grad_();
  with_grad.mutable_grad() = at::ones({2});
  at::Tensor broken_grad = at::ones({2}).requires_grad_();
  broken_grad.mutable_grad() = at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8);
  const OwnModule own({{"with_grad", with_grad},
                       {"broken_grad", broken_grad},
                       {"plain", at::ones({1})},
                       {"undefined", at::Tensor()},
                       {"meta", at::empty({3}, at::TensorOptions().device(at::kMeta))},
                       {"filtered", at::ones({1})}});
  for (const bool value : {false, true}) {
    for (const bool gradient : {false, true}) {
      SCOPED_TRACE(std::string(value ? "values " : "") + (gradient ? "gradients" : ""));
      Dumper dumper(
          values({std::string("enable_model_value=") + (value ? "1" : "0"),
                  std::string("enable_model_grad=") + (gradient ? "1" : "0"), "filter=name != 'param__filtered'"}));
      const DumpModelReport report = dumper.dump_model(own);
      EXPECT_EQ(report.seen, 6);
      EXPECT_EQ(report.filtered, 1);
      if (value) {
        EXPECT_EQ(report.seen, report.written + report.filtered + report.failed);
      } else {
        EXPECT_EQ(report.written + report.failed, 0);
      }
      if (gradient) {
        EXPECT_EQ(report.seen, report.grads_written + report.without_grad + report.filtered + report.grads_failed);
        EXPECT_EQ(report.grads_written, 1);
        EXPECT_EQ(report.grads_failed, 1);
      } else {
        EXPECT_EQ(report.grads_written + report.without_grad + report.grads_failed, 0);
      }
    }
  }
}

// What torch may throw when it is asked for a gradient.
struct BrokenAutogradMeta : c10::AutogradMetaInterface {
  void set_requires_grad(bool, at::TensorImpl*) override {}
  bool requires_grad() const override { return false; }
  at::Tensor& mutable_grad() override { throw std::runtime_error("no gradient to be had"); }
  const at::Tensor& grad() const override { throw std::runtime_error("no gradient to be had"); }
  const at::Tensor& fw_grad(std::uint64_t, const at::TensorBase&) const override { return none; }
  void set_fw_grad(const at::TensorBase&, const at::TensorBase&, std::uint64_t, bool) override {}
  at::Tensor none;
};

TEST_F(DumperModelTest, AFaultOutsideTheRecordCostsWhatIsOn) {
  const at::Tensor broken = at::ones({2});
  broken.unsafeGetTensorImpl()->set_autograd_meta(std::make_unique<BrokenAutogradMeta>());
  Dumper dumper(config({"enable_model_grad=true"}));
  const DumpModelReport report = dumper.dump_model(OwnModule({{"broken", broken}, {"plain", at::ones({1})}}));
  EXPECT_EQ(report.seen, 2);
  EXPECT_EQ(report.grads_failed, 1);
  EXPECT_EQ(report.without_grad, 1);
  EXPECT_EQ(report.failed, 0) << "values are not on";
  EXPECT_EQ(log_.count("no gradient to be had"), 1u);
}

TEST_F(DumperModelTest, NothingIsTouchedWhileAStreamIsCaptured) {
  Dumper dumper(values());
  set_stream_capture_probe([]() noexcept { return true; });
  const DumpModelReport report = dumper.dump_model(Tiny());
  set_stream_capture_probe(nullptr);
  EXPECT_EQ(report.seen, 4);
  EXPECT_EQ(report.failed, 4);
  EXPECT_EQ(report.grads_failed, 0) << "gradients are not on";
  EXPECT_EQ(dumper.state().counters.dropped, 4u);
  EXPECT_THAT(paths(), IsEmpty());
}

TEST_F(DumperModelTest, OffGivesAnEmptyReport) {
  Dumper dumper(values({"enable=false"}));
  const DumpModelReport report = dumper.dump_model(Tiny());
  EXPECT_EQ(report.seen, 0);
  EXPECT_THAT(report.children, IsEmpty());
}

// ---- Shared parameters and modules that are not registered ----

TEST_F(DumperModelTest, ExtraModulesGetTheirPath) {
  OwnModule embed({{"weight", at::ones({1})}});
  OwnModule layer0({{"q", at::ones({1})}});
  OwnModule layer1({{"q", at::zeros({1})}});
  auto held = std::make_shared<TinyImpl>();
  DumpModelOptions options;
  options.extra_modules.emplace_back("layers.0", layer0);
  options.extra_modules.emplace_back("layers.1", layer1);
  options.extra_modules.emplace_back("tiny", held);
  Dumper dumper(values());
  const auto capture = dumper.capture_output();
  const DumpModelReport report = dumper.dump_model(embed, options);
  EXPECT_THAT(names_in(capture.records()),
              UnorderedElementsAre("param__weight", "param__layers.0.q", "param__layers.1.q", "param__tiny.scale",
                                   "param__tiny.up.weight", "param__tiny.up.bias", "param__tiny.down.weight"));
  EXPECT_THAT(report.children, ElementsAre("weight", "layers", "tiny"));
  EXPECT_EQ(report.seen, 7);
}

TEST_F(DumperModelTest, ParameterThatIsRegisteredAndGivenExtraIsWrittenOnce) {
  const at::Tensor shared = at::ones({1});
  OwnModule model({{"layers.0.q", shared}, {"head", at::ones({1})}});
  OwnModule layer({{"q", shared}, {"unregistered", at::ones({1})}});
  DumpModelOptions options;
  options.extra_modules.emplace_back("layers.0", layer);
  options.extra_modules.emplace_back("layers.0", layer);
  Dumper dumper(values());
  const auto capture = dumper.capture_output();
  const DumpModelReport report = dumper.dump_model(model, options);
  EXPECT_THAT(names_in(capture.records()),
              UnorderedElementsAre("param__layers.0.q", "param__head", "param__layers.0.unregistered"));
  EXPECT_EQ(report.seen, 3);
  EXPECT_EQ(report.written, 3);
}

TEST_F(DumperModelTest, TiedNamesWithinOneWalkAreAllWritten) {
  const at::Tensor tied = at::ones({1});
  OwnModule model({{"embed.weight", tied}, {"head.weight", tied}});
  EXPECT_THAT(names_of(model), ElementsAre("param__embed.weight", "param__head.weight"));
}

TEST_F(DumperModelTest, UndefinedParametersAreNotTakenForOneAnother) {
  OwnModule model({{"a", at::Tensor()}});
  OwnModule extra({{"b", at::Tensor()}});
  DumpModelOptions options;
  options.extra_modules.emplace_back("extra", extra);
  Dumper dumper(values());
  EXPECT_EQ(dumper.dump_model(model, options).seen, 2);
}

struct ThrowingModule {
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const { throw std::runtime_error("moved away"); }
};

TEST_F(DumperModelTest, WalkThatThrowsCostsItsOwnPartOnly) {
  ThrowingModule broken;
  OwnModule model({{"a", at::ones({1})}});
  OwnModule good({{"b", at::ones({1})}});
  DumpModelOptions options;
  options.extra_modules.emplace_back("broken", broken);
  options.extra_modules.emplace_back("good", good);
  Dumper dumper(values());
  DumpModelReport report;
  EXPECT_NO_THROW(report = dumper.dump_model(model, options));
  EXPECT_THAT(file_tags("name"), ElementsAre("param__a", "param__good.b"));
  EXPECT_EQ(report.written, 2);
  EXPECT_EQ(dumper.state().counters.failed, 1u);
  EXPECT_EQ(log_.count("moved away"), 1u);
  EXPECT_NO_THROW(dumper.dump_model(broken));
  dumper.configure({"strict=true"});
  EXPECT_THROW(dumper.dump_model(broken), std::runtime_error);
}

// ---- Names from plugins ----

TEST_F(DumperModelTest, PluginsRenameInTurnAndTheMetaKeepsTheLocalName) {
  Dumper dumper(values());
  std::vector<std::string> calls;
  auto first = std::make_shared<test::FakePlugin>();
  auto second = std::make_shared<test::FakePlugin>();
  first->rename = [&](const ModelInfo&, const std::string& name) -> std::optional<std::string> {
    calls.push_back("first:" + name);
    return name == "kept" ? std::nullopt : std::optional("one." + name);
  };
  second->rename = [&](const ModelInfo&, const std::string& name) -> std::optional<std::string> {
    calls.push_back("second:" + name);
    return name == "kept" ? std::nullopt : std::optional(name + ".two");
  };
  dumper.add_plugin(first);
  dumper.add_plugin(second);
  const auto capture = dumper.capture_output();
  const DumpModelReport report = dumper.dump_model(OwnModule({{"a", at::ones({1})}, {"kept", at::ones({1})}}));
  const auto records = capture.records();
  EXPECT_THAT(calls, ElementsAre("first:a", "second:one.a", "first:kept", "second:kept"));
  EXPECT_THAT(names_in(records), ElementsAre("param__kept", "param__one.a.two"));
  EXPECT_EQ(meta_of(records.at("param__one.a.two").at(0), "local_name").toStringRef(), "a");
  EXPECT_FALSE(has_meta(records.at("param__kept").at(0), "local_name"));
  EXPECT_THAT(report.children, ElementsAre("a", "kept"));
}

TEST_F(DumperModelTest, GradientFollowsTheRenamedName) {
  Tiny model;
  model->forward(at::ones({1, 2})).sum().backward();
  Dumper dumper(config({"enable_model_grad=true", "filter=name == 'param__new'"}));
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->rename = [](const ModelInfo&, const std::string& name) -> std::optional<std::string> {
    return name == "scale" ? std::optional<std::string>("new") : std::nullopt;
  };
  dumper.add_plugin(plugin);
  const auto capture = dumper.capture_output();
  dumper.dump_model(model);
  const auto records = capture.records();
  EXPECT_THAT(names_in(records), ElementsAre("grad__param__new"));
  EXPECT_EQ(meta_of(records.at("grad__param__new").at(0), "local_name").toStringRef(), "scale");
}

TEST_F(DumperModelTest, ModelInfoSaysWhatIsWalked) {
  Dumper dumper(values());
  std::vector<ModelInfo> infos;
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->rename = [&](const ModelInfo& model, const std::string&) {
    infos.push_back(model);
    return std::nullopt;
  };
  dumper.add_plugin(plugin);
  OwnModule own({{"q", at::ones({1})}});
  DumpModelOptions options;
  options.model_chunk = 3;
  options.extra_modules.emplace_back("layers.0", own);
  std::shared_ptr<torch::nn::Module> model = std::make_shared<TinyImpl>();
  dumper.dump_model(model, options);
  ASSERT_EQ(infos.size(), 5u);
  EXPECT_THAT(infos[0].type_name, testing::EndsWith("TinyImpl")) << "the object's own type, not its base's";
  EXPECT_EQ(infos[0].prefix, "");
  EXPECT_THAT(infos[0].parameter_names, UnorderedElementsAre("scale", "up.weight", "up.bias", "down.weight"));
  EXPECT_THAT(infos[4].type_name, testing::EndsWith("OwnModule"));
  EXPECT_EQ(infos[4].prefix, "layers.0");
  EXPECT_THAT(infos[4].parameter_names, ElementsAre("layers.0.q"));
  for (const ModelInfo& info : infos) EXPECT_EQ(info.model_chunk, 3);
}

TEST_F(DumperModelTest, ThrowingPluginKeepsTheNameAtOneWarning) {
  Dumper dumper(values());
  auto broken = std::make_shared<test::FakePlugin>();
  broken->throws = true;
  auto good = std::make_shared<test::FakePlugin>();
  good->rename = [](const ModelInfo&, const std::string& name) { return std::optional("good." + name); };
  dumper.add_plugin(broken);
  dumper.add_plugin(good);
  dumper.dump_model(OwnModule({{"a", at::ones({1})}, {"b", at::ones({1})}, {"c", at::ones({1})}}));
  EXPECT_THAT(file_tags("name"), ElementsAre("param__good.a", "param__good.b", "param__good.c"));
  EXPECT_EQ(log_.count("no names"), 1u);
}

TEST_F(DumperModelTest, TwoPipelineStagesInOneFolderGiveTheUnsplitModelsParameters) {
  Dumper dumper(values());
  dumper.add_plugin(std::make_shared<PipelineLayerOffsetPlugin>(
      [](int) -> std::optional<std::int64_t> { return current_participant()->rank() * 3; }));
  for (int rank = 0; rank < 2; ++rank) {
    const ParticipantScope scope(std::make_shared<const Participant>(rank, 2));
    dumper.dump_model(stage_of(3 * rank, 3));
  }
  std::map<std::string, at::Tensor> written;
  for (const std::string& path : paths()) {
    const DumpRecord record = test::read_file(path);
    EXPECT_TRUE(written.emplace(meta_of(record, "name").toStringRef(), record.value.toTensor()).second) << path;
  }
  EXPECT_EQ(written.size(), 6u);
  for (const auto& [name, tensor] : stage_of(0, 6).named_parameters()) {
    ASSERT_EQ(written.count("param__" + name), 1u) << name;
    EXPECT_TRUE(at::equal(written.at("param__" + name), tensor)) << name;
  }
}

TEST_F(DumperModelTest, VirtualPipelineChunksHaveTheirOwnOffsets) {
  Dumper dumper(values());
  // Interleaved: rank 0 of 2 holds layers 0-1 and 4-5.
  dumper.add_plugin(
      std::make_shared<PipelineLayerOffsetPlugin>([](int chunk) -> std::optional<std::int64_t> { return chunk * 4; }));
  for (int chunk = 0; chunk < 2; ++chunk) {
    DumpModelOptions options;
    options.model_chunk = chunk;
    dumper.dump_model(stage_of(4 * chunk, 2), options);
  }
  EXPECT_THAT(file_tags("name"), ElementsAre("param__layers.0.weight", "param__layers.1.weight",
                                             "param__layers.4.weight", "param__layers.5.weight"));
}

}  // namespace
}  // namespace dbg
