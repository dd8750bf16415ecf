// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The JSON report, read back.
#include "compare/report_json.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "compare/run_folder.h"

namespace dbg::compare {
namespace {

using test::compare_runs;
using test::RunFolder;

TEST(ReportJsonTest, HoldsPairsSummaryAndLandmarks) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("a", at::ones({3}));
  target.add("a", at::ones({3}));
  baseline.add("b", at::tensor({1.0, 2.0, 3.0}), {.rank = 0, .step = 0, .tags = {{"layer_id", 2}}});
  target.add("b", at::tensor({1.0, 2.5, 3.0}), {.rank = 0, .step = 0, .tags = {{"layer_id", 2}}});
  baseline.add("c", at::ones({1}));
  const auto json = nlohmann::json::parse(report_json(compare_runs(baseline, target)));
  EXPECT_EQ(json.at("format"), "dbg compare");
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("summary").at("exit_code"), 1);
  EXPECT_EQ(json.at("summary").at("first_jump").at("pair"), 1);
  EXPECT_EQ(json.at("summary").at("first_jump").at("last_good"), 0);
  ASSERT_EQ(json.at("pairs").size(), 2U);
  const auto& pair = json.at("pairs")[1];
  EXPECT_EQ(pair.at("name"), "b");
  EXPECT_EQ(pair.at("tags"), "layer_id=2");
  EXPECT_EQ(pair.at("verdict"), "failed");
  EXPECT_EQ(pair.at("difference").at("max_at"), nlohmann::json::array({1}));
  EXPECT_EQ(pair.at("difference").at("max_abs"), 0.5);
  EXPECT_EQ(pair.at("target_percentiles").at("p50"), 2.5);
  EXPECT_EQ(json.at("pairs")[0].at("verdict"), "same bits");
  EXPECT_EQ(json.at("unpaired")[0].at("name"), "c");
  EXPECT_EQ(json.at("steps")[0].at("failed"), 1);
}

TEST(ReportJsonTest, NumbersThatAreNotFiniteAreTexts) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("a", at::tensor({1.0}));
  target.add("a", at::tensor({std::nan("")}));
  const auto json = nlohmann::json::parse(report_json(compare_runs(baseline, target)));
  EXPECT_EQ(json.at("pairs")[0].at("difference").at("rel_diff"), "inf");
  EXPECT_EQ(json.at("pairs")[0].at("target_percentiles").at("p50"), "nan");
}

TEST(ReportJsonTest, AnInfinityAloneHasItsPlaceAndValues) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("a", at::tensor({1.0, 2.0, 3.0}));
  target.add("a", at::tensor({1.0, 2.0, -INFINITY}));
  const auto json = nlohmann::json::parse(report_json(compare_runs(baseline, target)));
  const auto& difference = json.at("pairs")[0].at("difference");
  EXPECT_EQ(difference.at("max_abs"), "inf");
  EXPECT_EQ(difference.at("max_at"), nlohmann::json::array({2}));
  EXPECT_EQ(difference.at("baseline_at_max"), "3");
  EXPECT_EQ(difference.at("target_at_max"), "-inf");
  EXPECT_EQ(difference.at("inf_unequal"), 1);
  EXPECT_EQ(difference.at("nan_only_in_target"), 0);
  EXPECT_EQ(json.at("pairs")[0].at("growth"), "inf");
  EXPECT_EQ(json.at("pairs")[0].at("target_percentiles").at("p0"), "-inf");
  EXPECT_EQ(json.at("summary").at("first_jump").at("pair"), 0);
}

TEST(ReportJsonTest, NamesOfAnyBytesMakeValidJson) {
  RunFolder baseline;
  baseline.add("bad\xff utf8 \"quoted\"", at::tensor({1.0}));
  const auto json = nlohmann::json::parse(report_json(compare_runs(baseline, baseline)));
  EXPECT_EQ(json.at("pairs")[0].at("name"), "bad\xef\xbf\xbd utf8 \"quoted\"");
}

}  // namespace
}  // namespace dbg::compare
