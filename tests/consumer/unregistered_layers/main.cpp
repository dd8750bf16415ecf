// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A torch::nn::Module whose layers are not registered: handed over as extra modules, each parameter written once.
#include <torch/nn/module.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "dbg/dumper.h"

namespace {

struct Layer : torch::nn::Module {
  explicit Layer(const at::Tensor& shared) {
    register_parameter("weight", at::ones({2, 2}));
    register_parameter("tied", shared);
  }
};

struct Model : torch::nn::Module {
  Model() {
    const at::Tensor embed = register_parameter("embed", at::ones({4, 2}));
    for (int i = 0; i < 3; ++i) layers.push_back(std::make_shared<Layer>(embed));
  }
  std::vector<std::shared_ptr<Layer>> layers;
};

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (!holds) {
    std::printf("does not hold: %s\n", what.c_str());
    ++failures;
  }
}

}  // namespace

int main() {
  dbg::DumperConfig config;
  config.enable = true;
  config.enable_model_value = true;
  dbg::Dumper dumper(config);
  const auto model = std::make_shared<Model>();
  {
    const dbg::CaptureScope capture = dumper.capture_output();
    const dbg::DumpModelReport report = dumper.dump_model(model);
    expect(report.seen == 1 && capture.records().size() == 1, "without help only what is registered is seen");
  }
  {
    const dbg::CaptureScope capture = dumper.capture_output();
    dbg::DumpModelOptions options;
    for (std::size_t i = 0; i < model->layers.size(); ++i) {
      options.extra_modules.emplace_back("layers." + std::to_string(i), *model->layers[i]);
    }
    const dbg::DumpModelReport report = dumper.dump_model(model, options);
    const auto records = capture.records();
    expect(records.count("param__layers.2.weight") == 1, "a layer that is not registered is written under its path");
    expect(records.count("param__embed") == 1, "what is registered too");
    expect(report.seen == 4, "the tied parameter counts once, so four are seen and not " + std::to_string(report.seen));
    expect(records.size() == 4, "four records and not " + std::to_string(records.size()));
  }
  if (failures == 0) std::printf("client: all holds\n");
  return failures == 0 ? 0 : 1;
}
