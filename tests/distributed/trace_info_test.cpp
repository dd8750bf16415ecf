// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Traces of torch's profiler: the label beside each operation and in `distributedInfo`, none with labels off.
#include "distributed/trace_info.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "distributed/groups.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using nlohmann::json;

// What torch's profiler writes while `body` runs.
template <class Body>
json trace_of(Body&& body) {
  using namespace torch::profiler::impl;  // NOLINT(google-build-using-namespace)
  const std::set<ActivityType> activities{ActivityType::CPU};
  const ProfilerConfig config(ProfilerState::KINETO, true);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  body();
  const auto result = torch::autograd::profiler::disableProfiler();
  const test::TempFolder folder;
  const std::string path = folder / "trace.json";
  result->save(path);
  std::ifstream file(path);
  return json::parse(file);
}

std::vector<json> communication_in(const json& trace) {
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("name", "") == "record_param_comms") found.push_back(event.at("args"));
  }
  return found;
}

TEST(TraceInfoTest, TracesShowNameAndDescription) {
  const auto group = test::lone_group("kineto");
  const json trace = trace_of([&] {
    GroupCoordinator::annotate_trace();
    group->all_reduce(at::ones({3}));
  });
  const std::vector<json> calls = communication_in(trace);
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls[0].at("Process Group Name"), "kineto:device@0.g0");
  EXPECT_EQ(calls[0].at("Process Group Description"), "kineto:device");
  ASSERT_TRUE(trace.contains("distributedInfo"));
  std::set<std::string> descriptions;
  for (const json& one : trace["distributedInfo"].at("pg_config"))
    descriptions.insert(one.at("pg_desc").get<std::string>());
  EXPECT_THAT(descriptions, testing::IsSupersetOf({"kineto:device", "kineto:cpu"}));
}

TEST(TraceInfoTest, TracesShowNoLabelWithLabelsOff) {
  const auto group = test::lone_group("kineto_off", false);
  const json trace = trace_of([&] {
    GroupCoordinator::annotate_trace();
    group->all_reduce(at::ones({3}));
  });
  EXPECT_EQ(trace.dump().find("kineto_off"), std::string::npos);
}

TEST(TraceInfoTest, GroupsAreListedWhileTheyLive) {
  EXPECT_EQ(distributed::distributed_info_json(), "");
  const auto group = test::lone_group("listed");
  const json info = json::parse(distributed::distributed_info_json());
  EXPECT_EQ(info.at("pg_count"), 2);
  EXPECT_EQ(info.at("pg_config").at(0).at("pg_name"), "listed:cpu@0.g0");
  EXPECT_EQ(info.at("pg_config").at(1).at("ranks"), json::array({0}));
  group->close();
  EXPECT_EQ(distributed::distributed_info_json(), "");
}

}  // namespace
}  // namespace dbg
