// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Each channel by which tools see a label, read as the tool reads it; and that without labels it shows none.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "dbg/group_coordinator.h"
#include "distributed/flight_recorder.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using nlohmann::json;

std::shared_ptr<GroupCoordinator> group_named(const std::string& name, bool with_labels = true, bool check = false) {
  GroupOptions options;
  options.group_name = name;
  options.device_backend = "gloo";
  options.with_labels = with_labels;
  options.check = check;
  return GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
}

// The `[name, description]` of recorded entries that carry `label`.
std::set<std::string> recorded_under(const std::string& label) {
  std::set<std::string> operations;
  const json dump = json::parse(distributed::flight_recorder_json(true));
  if (!dump.contains("entries")) return operations;
  for (const json& entry : dump["entries"]) {
    if (entry["process_group"][1] == label) operations.insert(entry["profiling_name"].get<std::string>());
  }
  return operations;
}

class FlightRecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (distributed::flight_recorder_json(false).empty()) GTEST_SKIP() << "this torch has no Flight Recorder for gloo";
  }
};

TEST_F(FlightRecorderTest, EntriesOfRealCollectivesCarryTheLabel) {
  const auto group = group_named("fr_on");
  group->all_reduce(at::ones({3}));
  group->barrier();
  EXPECT_THAT(recorded_under("fr_on:device"), testing::Contains("gloo:all_reduce"));
  EXPECT_FALSE(recorded_under("fr_on:cpu").empty());
}

TEST_F(FlightRecorderTest, EntriesCarryNothingWithLabelsOff) {
  const auto group = group_named("fr_off", false);
  group->all_reduce(at::ones({3}));
  EXPECT_TRUE(recorded_under("fr_off:device").empty());
}

TEST_F(FlightRecorderTest, CheckingGroupsRecordUnderTheLabelToo) {
  const auto group = group_named("fr_check", true, true);
  group->all_reduce(at::ones({3}));
  EXPECT_THAT(recorded_under("fr_check:device"), testing::Contains("gloo:all_reduce"));
  const json dump = json::parse(distributed::flight_recorder_json(true));
  for (const json& entry : dump["entries"]) {
    const std::string name = entry["process_group"][0];
    if (name.find("fr_check") != std::string::npos) {
      EXPECT_NE(entry["process_group"][1], "") << entry.dump();
    }
  }
}

TEST_F(FlightRecorderTest, TheConfigurationHoldsNameAndRanks) {
  const auto group = group_named("fr_config");
  const auto config = distributed::recorded_group_config("fr_config:cpu@0.g0");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->name.find("fr_config:cpu"), 0U);
  EXPECT_EQ(config->ranks, "[0]");
  // Whether this torch fills it is in the report.
  if (!config->description.empty()) {
    EXPECT_EQ(config->description, "fr_config:cpu");
  }
}

TEST_F(FlightRecorderTest, TheConfigurationHoldsNothingWithLabelsOff) {
  const auto group = group_named("fr_config_off", false);
  EXPECT_FALSE(distributed::recorded_group_config("fr_config_off:cpu@0.g0"));
}

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

TEST(KinetoTest, TracesShowNameAndDescription) {
  const auto group = group_named("kineto");
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
  for (const json& one : trace["distributedInfo"].at("pg_config")) descriptions.insert(one.at("pg_desc"));
  EXPECT_THAT(descriptions, testing::IsSupersetOf({"kineto:device", "kineto:cpu"}));
}

TEST(KinetoTest, TracesShowNoLabelWithLabelsOff) {
  const auto group = group_named("kineto_off", false);
  const json trace = trace_of([&] {
    GroupCoordinator::annotate_trace();
    group->all_reduce(at::ones({3}));
  });
  EXPECT_EQ(trace.dump().find("kineto_off"), std::string::npos);
}

TEST(LabelReportTest, TellsEachChannel) {
  const auto group = group_named("report");
  const LabelReport report = group->label_report();
  std::set<std::string> carrying;
  for (const LabelChannel& one : report.channels) {
    if (one.carries_label) carrying.insert(one.half + ": " + one.channel);
  }
  for (const char* half : {"device", "cpu"}) {
    for (const char* channel :
         {"group_desc of the process group", "group_desc of the backend", "Flight Recorder entries"}) {
      EXPECT_TRUE(carrying.count(std::string(half) + ": " + channel)) << half << ' ' << channel << '\n'
                                                                      << report.text();
    }
  }
  EXPECT_THAT(report.text(), testing::HasSubstr("cpu: group_desc of the backend = report:cpu"));
}

TEST(LabelReportTest, SaysSoWhenNothingIsLabelled) {
  const LabelReport report = group_named("report_off", false)->label_report();
  ASSERT_FALSE(report.channels.empty());
  for (const LabelChannel& one : report.channels) EXPECT_FALSE(one.carries_label) << report.text();
}

}  // namespace
}  // namespace dbg
