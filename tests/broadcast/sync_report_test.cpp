// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The report's words and its one sum.
#include "dbg/sync_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dbg {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SyncReportTest, BandwidthIsOfTheTimeThatBytesMoved) {
  SyncReport report;
  EXPECT_EQ(report.bandwidth(), 0);
  report.total_bytes = 1000000;
  report.seconds = 3;
  report.begin_seconds = 1;
  EXPECT_DOUBLE_EQ(report.bandwidth(), 500000);
}

TEST(SyncReportTest, SaysWhatIsKnownAndNoMore) {
  SyncReport report;
  report.version = 12;
  report.num_weights = 3;
  report.num_senders = 2;
  report.world_size = 6;
  EXPECT_THAT(report.describe(), HasSubstr("version 12: 3 weights"));
  EXPECT_THAT(report.describe(), HasSubstr("2 of 6 ranks send"));
  EXPECT_THAT(report.describe(), Not(HasSubstr("predicted")));
  report.predicted_seconds = 1.5;
  report.predicted_limit = "cards of the senders";
  report.num_changed = 1;
  report.consumers = {{"rollout 0 on node b", true, ""}, {"rollout 1 on node b", false, "disk full"}};
  EXPECT_THAT(report.describe(), HasSubstr("predicted 1.500 s"));
  EXPECT_THAT(report.describe(), HasSubstr("1 of 3 weights have changed"));
  EXPECT_THAT(report.describe(), HasSubstr("rollout 0 on node b: committed"));
  EXPECT_THAT(report.describe(), HasSubstr("NOT committed: disk full"));
}

}  // namespace
}  // namespace dbg
