// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The Flight Recorder's dump of real collectives: labels in entries and configuration, none with labels off.
#include "distributed/flight_recorder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

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

// Torch 2.7's options have neither.
template <class Options>
void name_as_python_does(Options& options, const std::string& name, int rank) {
  if constexpr (requires { options.group_name; }) options.group_name = name;
  if constexpr (requires { options.global_ranks_in_group; }) {
    options.global_ranks_in_group = {static_cast<std::uint64_t>(rank)};
  }
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
  if (distributed::can_describe_recorded_groups()) {
    EXPECT_EQ(config->description, "fr_config:cpu");
  }
}

// What somebody else has said of its ranks stays; what it was called does not.
TEST_F(FlightRecorderTest, TheConfigurationOfAnAdoptedGroupHoldsItsLabel) {
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(20000));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
  name_as_python_does(*options, "fr_theirs", 5);
  auto theirs = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), 0, 1);
  theirs->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  theirs->setBackend(
      c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
      c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::HashStore>(), 0, 1, options));
  theirs->setGroupName("fr_theirs");
  AdoptOptions adopted;
  adopted.group_name = "fr_adopted";
  const auto group = GroupCoordinator::adopt(theirs, {}, adopted);
  group->all_reduce(at::ones({3}));
  EXPECT_THAT(recorded_under("fr_adopted:device"), testing::Contains("gloo:all_reduce"));
  const auto config = distributed::recorded_group_config("fr_theirs");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->ranks, "[5]");
  if (distributed::can_describe_recorded_groups()) {
    EXPECT_EQ(config->description, "fr_adopted:device");
  }
}

TEST_F(FlightRecorderTest, TheConfigurationHoldsNothingWithLabelsOff) {
  const auto group = test::lone_group("fr_config_off", false);
  EXPECT_FALSE(distributed::recorded_group_config("fr_config_off:cpu@0.g0"));
}

}  // namespace
}  // namespace dbg
