// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The report of a group's label, channel by channel.
#include "dbg/label_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "distributed/groups.h"

namespace dbg {
namespace {

TEST(LabelReportTest, TellsEachChannel) {
  const auto group = test::lone_group("report");
  const LabelReport report = group->label_report();
  std::set<std::string> carrying;
  for (const LabelChannel& one : report.channels) {
    if (one.carries_label) carrying.insert(one.half + ": " + one.channel);
  }
  for (const char* half : {"device", "cpu"}) {
    for (const char* channel :
         {"group_desc of the process group", "group_desc of the backend", "Flight Recorder entries", "Kineto"}) {
      EXPECT_TRUE(carrying.count(std::string(half) + ": " + channel)) << half << ' ' << channel << '\n'
                                                                      << report.text();
    }
  }
  EXPECT_THAT(report.text(), testing::HasSubstr("cpu: group_desc of the backend = report:cpu"));
}

// What can't be changed or is not known has a row as well, which says so.
TEST(LabelReportTest, LeavesNoChannelOut) {
  const auto rows = [](const GroupCoordinator& group) {
    std::multiset<std::string> all;
    for (const LabelChannel& one : group.label_report().channels) {
      if (one.half == "cpu") all.insert(one.channel);
    }
    return all;
  };
  const std::multiset<std::string> plain{"group_desc of the process group", "group_desc of the backend",
                                         "Flight Recorder entries", "Flight Recorder pg_config", "Kineto"};
  EXPECT_EQ(rows(*test::lone_group("report_rows")), plain);
  std::multiset<std::string> checked = plain;
  checked.insert({"group_desc of the comparing helper", "Flight Recorder entries", "Flight Recorder pg_config"});
  EXPECT_EQ(rows(*test::lone_group("report_checked", true, /*check=*/true)), checked);
}

TEST(LabelReportTest, SaysSoWhenNothingIsLabelled) {
  const LabelReport report = test::lone_group("report_off", false)->label_report();
  ASSERT_FALSE(report.channels.empty());
  for (const LabelChannel& one : report.channels) EXPECT_FALSE(one.carries_label) << report.text();
}

}  // namespace
}  // namespace dbg
