// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The ready-made sources and sinks, alone and with a real model's file.
#include "dbg/model_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "broadcast/syncing.h"
#include "dbg/error.h"
#include "dbg/safetensors.h"

namespace dbg {
namespace {

using test::run_workers_as_threads;
using test::Worker;
using testing::HasSubstr;

// An engine's own module class: pairs in place of torch's items.
struct EngineModel {
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const { return parameters; }
  std::vector<std::pair<std::string, at::Tensor>> parameters;
};

EngineModel engine_model(double value) {
  return {{{"a.weight", at::full({3, 4}, value).requires_grad_()},
           {"a.bias", at::full({4}, value + 1)},
           {"b.weight", at::full({300, 40}, value + 2).t()},
           {"scale", at::full({}, value + 3)}}};
}

TEST(ModelWeightsTest, ParametersOfAnyModelOrPointer) {
  EngineModel model = engine_model(1);
  EngineModel* pointer = &model;
  EXPECT_EQ(parameters_of(model).size(), 4U);
  EXPECT_EQ(parameters_of(pointer)[2].name, "b.weight");
  EngineModel* none = nullptr;
  EXPECT_THROW(parameters_of(none), ConfigError);
}

TEST(ModelWeightsTest, ASourceBeginsAgain) {
  TensorListSource source(parameters_of(*std::make_unique<EngineModel>(engine_model(1))));
  source.begin();
  EXPECT_EQ(source.next()->name, "a.weight");
  EXPECT_EQ(source.next()->name, "a.bias");
  source.begin();
  EXPECT_EQ(source.next()->name, "a.weight");
  EXPECT_EQ(source.manifest()->size(), 4U);
  EXPECT_TRUE(source.has_stable_storage());
}

TEST(ModelWeightsTest, AStagedSinkLeavesTheModelAloneUntilTheCommit) {
  EngineModel model = engine_model(1);
  TensorListSink sink(parameters_of(model), WeightSink::Mode::staged);
  const auto give = [&](double value) {
    sink.begin(1);
    for (const auto& [name, tensor] : engine_model(value).parameters) {
      sink.take({name, tensor.sizes().vec(), tensor.scalar_type()}, tensor.detach().contiguous(), true);
    }
  };
  const void* address = model.parameters[0].second.const_data_ptr();
  give(5);
  EXPECT_EQ(model.parameters[0].second[0][0].item<double>(), 1);
  sink.roll_back("no");
  give(7);
  sink.check_complete();
  sink.commit(1);
  EXPECT_EQ(model.parameters[0].second[0][0].item<double>(), 7);
  EXPECT_EQ(model.parameters[2].second[5][5].item<double>(), 9);
  EXPECT_EQ(model.parameters[0].second.const_data_ptr(), address);  // who holds the parameter sees the new values
  EXPECT_TRUE(model.parameters[0].second.requires_grad());
}

TEST(ModelWeightsTest, ASinkRefusesWhatHasNoPlaceAndMissesWhatDidNotCome) {
  EngineModel model = engine_model(1);
  TensorListSink sink(parameters_of(model), WeightSink::Mode::staged);
  const auto refusal = [&](const WeightInfo& weight) -> std::string {
    try {
      sink.take(weight, at::ones(weight.shape, weight.dtype), true);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  sink.begin(1);
  EXPECT_THAT(refusal({"c.weight", {3, 4}, at::kFloat}), HasSubstr("no place for 'c.weight'"));
  EXPECT_THAT(refusal({"a.weight", {4, 3}, at::kFloat}), HasSubstr("its place is 'a.weight' (float32 [3, 4])"));
  EXPECT_THAT(refusal({"a.weight", {3, 4}, at::kHalf}), HasSubstr("float16"));
  EXPECT_EQ(refusal({"a.weight", {3, 4}, at::kFloat}), "accepted");
  EXPECT_THROW(sink.check_complete(), ConfigError);
  EXPECT_THROW(TensorListSink({{"x", at::ones({1})}, {"x", at::ones({1})}}, WeightSink::Mode::staged), ConfigError);
  EXPECT_THROW(TensorListSink({{"x", at::Tensor()}}, WeightSink::Mode::staged), ConfigError);
}

TEST(ModelWeightsTest, AModelIsSyncedIntoAnotherInBothModes) {
  for (const auto mode : {WeightSink::Mode::staged, WeightSink::Mode::in_place}) {
    run_workers_as_threads({{"a"}, {"b", "b"}, test::quick_options()}, [&](const Worker& worker) {
      const auto broadcaster = worker.make();
      EngineModel model = engine_model(worker.is_actor() ? 10 : -1);
      if (worker.is_actor()) {
        TensorListSource source(parameters_of(model));
        broadcaster->send(source);
        return;
      }
      TensorListSink sink(parameters_of(model), mode);
      broadcaster->receive(sink);
      const EngineModel sent = engine_model(10);
      for (std::size_t i = 0; i < sent.parameters.size(); ++i) {
        EXPECT_TRUE(at::equal(model.parameters[i].second, sent.parameters[i].second)) << sent.parameters[i].first;
      }
    });
  }
}

TEST(ModelWeightsTest, AModelThatLacksAParameterFailsOnAllRanks) {
  run_workers_as_threads({{"a"}, {"b", "b"}, test::quick_options()}, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    EngineModel model = engine_model(2);
    if (worker.id == 2) model.parameters.push_back({"extra", at::ones({1})});
    TensorListSource source(parameters_of(model));
    TensorListSink sink(parameters_of(model), WeightSink::Mode::staged);
    const CommFailure failure = test::failure_of_sync(
        [&] {
          if (worker.is_actor()) {
            broadcaster->send(source);
          } else {
            broadcaster->receive(sink);
          }
        },
        std::chrono::seconds(5));
    EXPECT_THAT(failure.cause, testing::AllOf(HasSubstr("rollout 1 on node b"), HasSubstr("'extra' got no values")));
  });
}

TEST(ModelWeightsTest, ARealModelsFileArrivesBitForBit) {
  const char* folder = std::getenv("DBG_TEST_MINILM_DIR");
  const std::string path = folder == nullptr ? "" : std::string(folder) + "/model.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path;
  test::SyncSetup setup{{"a", "a"}, {"b", "b"}, test::quick_options()};
  setup.options.bucket_bytes = 8 << 20;
  setup.options.chunk_bytes = 256 << 10;
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.is_actor()) {
      SafetensorsSource source(path);
      broadcaster->send(source);
      return;
    }
    TensorMapSink sink;
    const SyncReport report = broadcaster->receive(sink);
    const SafetensorsFile file = SafetensorsFile::open(path);
    EXPECT_EQ(report.num_weights, file.tensors().size());
    std::vector<NamedParameter> expected;
    for (const std::string& name : file.names()) expected.push_back({name, file.tensor(name)});
    test::expect_version(sink, expected);
  });
}

}  // namespace
}  // namespace dbg
