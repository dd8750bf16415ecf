// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about plugins' defaults and about the rewriting of `layers.N`.
#include "dbg/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dbg/error.h"

namespace dbg {
namespace {

PipelineLayerOffsetPlugin plugin_with(std::optional<std::int64_t> offset, std::string prefix = "") {
  PipelineLayerOffsetPlugin::Options options;
  options.prefix = std::move(prefix);
  return PipelineLayerOffsetPlugin([offset](int) { return offset; }, options);
}

std::string rewritten(std::optional<std::int64_t> offset, const std::string& name, const std::string& prefix = "") {
  return plugin_with(offset, prefix).transform_model_param_name(ModelInfo(), name).value_or("<kept>");
}

struct Plain : FrameworkPlugin {
  std::string name() const override { return "plain"; }
};

TEST(FrameworkPluginTest, DefaultsSayThatNothingIsKnown) {
  Plain plugin;
  EXPECT_TRUE(plugin.collect_parallel_info().empty());
  EXPECT_EQ(plugin.transform_model_param_name(ModelInfo(), "a"), std::nullopt);
  EXPECT_EQ(plugin.layer_id_of("layers.3"), std::nullopt);
  EXPECT_EQ(plugin.recompute_status(), std::nullopt);
  EXPECT_EQ(plugin.parallel_info_name(), "megatron");
}

TEST(PipelineLayerOffsetPluginTest, AddsTheOffsetToTheFirstLayersSegment) {
  EXPECT_EQ(rewritten(4, "layers.0.weight"), "layers.4.weight");
  EXPECT_EQ(rewritten(4, "model.decoder.layers.11.mlp.up.weight"), "model.decoder.layers.15.mlp.up.weight");
  EXPECT_EQ(rewritten(4, "layers.1.experts.layers.2.weight"), "layers.5.experts.layers.2.weight");
  EXPECT_EQ(rewritten(4, "layers.7"), "layers.11");
  EXPECT_EQ(rewritten(96, "layers.9.a"), "layers.105.a");
}

TEST(PipelineLayerOffsetPluginTest, KeepsWhatIsNotExactlyALayer) {
  for (const char* name :
       {"sublayers.2.weight", "layers_norm.2", "layers.weight", "layers", "layers.", "layers.x.1", "layers.-1.w",
        "layers.1x.w", "layers.99999999999999999999.w", "embed.weight", "", "Layers.2"}) {
    EXPECT_EQ(rewritten(4, name), "<kept>") << name;
  }
}

TEST(PipelineLayerOffsetPluginTest, KeepsLayersBelowMtp) {
  EXPECT_EQ(rewritten(4, "mtp.layers.0.weight"), "<kept>");
  EXPECT_EQ(rewritten(4, "model.mtp.layers.0.weight"), "<kept>");
  EXPECT_EQ(rewritten(4, "smtp.layers.0.weight"), "smtp.layers.4.weight");
  PipelineLayerOffsetPlugin::Options options;
  options.excluded = {"draft"};
  PipelineLayerOffsetPlugin plugin([](int) { return 4; }, options);
  EXPECT_EQ(plugin.transform_model_param_name(ModelInfo(), "draft.layers.0"), std::nullopt);
  EXPECT_EQ(plugin.transform_model_param_name(ModelInfo(), "mtp.layers.0"), "mtp.layers.4");
}

TEST(PipelineLayerOffsetPluginTest, RewritesOnlyBelowThePrefix) {
  EXPECT_EQ(rewritten(4, "decoder.layers.0.weight", "decoder"), "decoder.layers.4.weight");
  EXPECT_EQ(rewritten(4, "model.decoder.block.layers.0.weight", "model.decoder"),
            "model.decoder.block.layers.4.weight");
  EXPECT_EQ(rewritten(4, "encoder.layers.0.weight", "decoder"), "<kept>");
  EXPECT_EQ(rewritten(4, "decoders.layers.0.weight", "decoder"), "<kept>");
  EXPECT_EQ(rewritten(4, "layers.0.weight", "decoder"), "<kept>");
  EXPECT_EQ(rewritten(4, "decoder", "decoder"), "<kept>");
}

TEST(PipelineLayerOffsetPluginTest, NoneAndZeroKeepTheName) {
  EXPECT_EQ(rewritten(std::nullopt, "layers.0.weight"), "<kept>");
  EXPECT_EQ(rewritten(0, "layers.0.weight"), "<kept>");
}

TEST(PipelineLayerOffsetPluginTest, AsksTheCallbackForTheModelsChunk) {
  std::vector<int> asked;
  PipelineLayerOffsetPlugin plugin([&](int chunk) -> std::optional<std::int64_t> {
    asked.push_back(chunk);
    return 10 * chunk;
  });
  ModelInfo model;
  model.model_chunk = 2;
  EXPECT_EQ(plugin.transform_model_param_name(model, "layers.1.w"), "layers.21.w");
  EXPECT_EQ(plugin.transform_model_param_name(model, "embed.w"), std::nullopt);
  EXPECT_THAT(asked, testing::ElementsAre(2)) << "a name without a layer needs no offset";
}

TEST(PipelineLayerOffsetPluginTest, RefusesOffsetsThatMakeNoSense) {
  EXPECT_THROW(rewritten(-1, "layers.0.weight"), ConfigError);
  EXPECT_THROW(rewritten(std::numeric_limits<std::int64_t>::max(), "layers.1.weight"), ConfigError);
  EXPECT_THROW(PipelineLayerOffsetPlugin(nullptr), ConfigError);
}

TEST(PipelineLayerOffsetPluginTest, LayerIdIsCountedOverTheWholeModel) {
  auto plugin = plugin_with(4);
  EXPECT_EQ(plugin.layer_id_of("model.layers.3.mlp"), 7);
  EXPECT_EQ(plugin.layer_id_of("model.layers.3"), 7);
  EXPECT_EQ(plugin.layer_id_of("mtp.layers.0"), std::nullopt);
  EXPECT_EQ(plugin.layer_id_of("embed"), std::nullopt);
  auto unsplit = plugin_with(std::nullopt);
  EXPECT_EQ(unsplit.layer_id_of("layers.3"), 3);
}

TEST(LayerIdInPathTest, IsTheNumberBehindTheFirstLayersSegment) {
  EXPECT_EQ(layer_id_in_path("model.layers.12.mlp"), 12);
  EXPECT_EQ(layer_id_in_path("layers.0"), 0);
  EXPECT_EQ(layer_id_in_path("sublayers.0"), std::nullopt);
  EXPECT_EQ(layer_id_in_path("layers"), std::nullopt);
  EXPECT_EQ(layer_id_in_path(""), std::nullopt);
}

}  // namespace
}  // namespace dbg
