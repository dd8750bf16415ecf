// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The Flight Recorder's dump of real collectives: labels in entries and configuration, none with labels off.
#include "distributed/flight_recorder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "dbg/version.h"
#include "distributed/groups.h"

namespace dbg {
namespace {

using nlohmann::json;

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
    const std::string version = compiled_torch_version();
    if (version.rfind("2.9.", 0) == 0) GTEST_SKIP() << "torch 2.9 has the recorder, and its gloo records nothing";
  }
};

TEST_F(FlightRecorderTest, EntriesOfRealCollectivesCarryTheLabel) {
  const auto group = test::lone_group("fr_on");
  group->all_reduce(at::ones({3}));
  group->barrier();
  EXPECT_THAT(recorded_under("fr_on:device"), testing::Contains("gloo:all_reduce"));
  EXPECT_FALSE(recorded_under("fr_on:cpu").empty());
}

TEST_F(FlightRecorderTest, EntriesCarryNothingWithLabelsOff) {
  const auto group = test::lone_group("fr_off", false);
  group->all_reduce(at::ones({3}));
  EXPECT_TRUE(recorded_under("fr_off:device").empty());
}

TEST_F(FlightRecorderTest, CheckingGroupsRecordUnderTheLabelToo) {
  const auto group = test::lone_group("fr_check", true, true);
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
  const auto group = test::lone_group("fr_config");
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
  const auto group = test::lone_group("fr_config_off", false);
  EXPECT_FALSE(distributed::recorded_group_config("fr_config_off:cpu@0.g0"));
}

}  // namespace
}  // namespace dbg
