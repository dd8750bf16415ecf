// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// An engine's own module base, its own holder, several ranks as threads of one process: what dbg sees of them.
#include <ATen/ATen.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "dbg/plugin.h"

namespace engine {

// Knows nothing of torch::nn.
class Module {
 public:
  virtual ~Module() = default;

  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const {
    auto all = parameters_;
    for (const auto& [name, child] : children_) {
      for (auto& [path, tensor] : child->named_parameters()) all.emplace_back(name + "." + path, std::move(tensor));
    }
    return all;
  }

 protected:
  void add(std::string name, at::Tensor tensor) { parameters_.emplace_back(std::move(name), std::move(tensor)); }
  void add(std::string name, std::shared_ptr<Module> child) {
    children_.emplace_back(std::move(name), std::move(child));
  }

 private:
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> children_;
};

class Linear : public Module {
 public:
  explicit Linear(double value) { add("weight", at::full({2, 2}, value)); }
};

class Model : public Module {
 public:
  Model() {
    add("embed", std::make_shared<Linear>(1.0));
    add("layers.0", std::make_shared<Linear>(2.0));
    add("head", at::ones({2}));
  }
};

// As engines wrap their modules: neither a pointer nor convertible to one.
class Holder {
 public:
  explicit Holder(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  Model& operator*() const { return *model_; }

 private:
  std::shared_ptr<Model> model_;
};

// The second stage of a pipeline, whose first layer is the model's eighth.
class Names : public dbg::FrameworkPlugin {
 public:
  std::string name() const override { return "engine"; }
  std::optional<std::string> transform_model_param_name(const dbg::ModelInfo& model, const std::string& name) override {
    if (model.type_name.find("engine::Model") == std::string::npos) return std::nullopt;
    if (name == "layers.0.weight") return "layers.8.weight";
    return std::nullopt;
  }
};

}  // namespace engine

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (!holds) {
    std::printf("does not hold: %s\n", what.c_str());
    ++failures;
  }
}

dbg::DumperConfig on() {
  dbg::DumperConfig config;
  config.enable = true;
  config.enable_model_value = true;
  return config;
}

void one_rank() {
  dbg::Dumper dumper(on());
  const dbg::PluginHandle plugin = dumper.add_plugin(std::make_shared<engine::Names>());
  const dbg::CaptureScope capture = dumper.capture_output();
  const engine::Holder holder(std::make_shared<engine::Model>());
  const dbg::DumpModelReport report = dumper.dump_model(holder);
  expect(report.seen == 3, "three parameters behind the holder, not " + std::to_string(report.seen));
  expect(report.children == std::vector<std::string>{"embed", "layers", "head"} ||
             report.children == std::vector<std::string>{"head", "embed", "layers"},
         "the children are the first path segments");
  const auto records = capture.records();
  expect(records.count("param__embed.weight") == 1, "a parameter by its path");
  expect(records.count("param__layers.8.weight") == 1, "a parameter by the name that the plugin gave it");
}

void ranks_as_threads() {
  dbg::Dumper dumper(on());
  std::vector<std::thread> threads;
  std::vector<std::size_t> seen(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&dumper, &seen, rank] {
      const dbg::ParticipantScope scope(std::make_shared<dbg::Participant>(rank, 2, rank));
      const dbg::CaptureScope capture = dumper.capture_output();
      for (int layer = 0; layer <= rank; ++layer) dumper.dump("hidden", at::ones({2}), {{"layer_id", layer}});
      seen[static_cast<std::size_t>(rank)] = capture.records()["hidden"].size();
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(seen[0] == 1 && seen[1] == 2, "each rank has its own records");
}

}  // namespace

int main() {
  one_rank();
  ranks_as_threads();
  if (failures == 0) std::printf("client: all holds\n");
  return failures == 0 ? 0 : 1;
}
