// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the terminal gets.
#include "compare/report_text.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compare/report_label.h"
#include "compare/run_folder.h"

namespace dbg::compare {
namespace {

using test::compare_runs;
using test::RunFolder;
using testing::HasSubstr;
using testing::Not;

CompareReport sample(const std::string& name) {
  RunFolder baseline;
  RunFolder target;
  for (int layer = 0; layer < 60; ++layer) {
    const at::Tensor value = at::ones({4, 4});
    baseline.add(name, value, {.tags = {{"layer_id", layer}}});
    target.add(name, layer < 40 ? value : value * 1.5, {.tags = {{"layer_id", layer}}});
  }
  baseline.add("lonely", at::ones({1}));
  return compare_runs(baseline, target);
}

TEST(ReportTextTest, TheHeadlineNamesThePairTheNumbersAndTheLastGoodOne) {
  const std::string text = report_text(sample("attn"));
  EXPECT_THAT(text, HasSubstr("first other bits: step=0 rank=0 attn layer_id=40\n"));
  EXPECT_THAT(text, HasSubstr("first beyond tolerance: step=0 rank=0 attn layer_id=40\n"));
  EXPECT_THAT(text, HasSubstr("first jump: step=0 rank=0 attn layer_id=40\n"));
  EXPECT_THAT(text, HasSubstr("the most at [0, 0]: 1 against 1.5"));
  EXPECT_THAT(text, HasSubstr("last that passed: step=0 rank=0 attn layer_id=39"));
  EXPECT_THAT(text, HasSubstr("only in the baseline: 1 records"));
  EXPECT_THAT(text, HasSubstr("60 pairs: 40 same bits, 0 passed, 20 failed, 0 skipped; 1 without partner"));
  EXPECT_THAT(text, HasSubstr("--all shows every one"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(ReportTextTest, AllShowsEveryPairAndColoursComeOnlyWhenWanted) {
  TextOptions options;
  options.shows_all = true;
  options.is_coloured = true;
  const std::string text = report_text(sample("attn"), options);
  EXPECT_THAT(text, HasSubstr("attn layer_id=7 "));
  EXPECT_THAT(text, HasSubstr("\x1b[31mfailed"));
}

TEST(ReportTextTest, ControlCharactersOfNamesDoNotReachTheTerminal) {
  EXPECT_THAT(report_text(sample("a\x1b[2Jb")), HasSubstr("a\\x1b[2Jb"));
  EXPECT_EQ(safe_text("\xc3\xa9\xc2\x9b\n"), "\xc3\xa9\\x9b\\x0a");
}

TEST(ReportTextTest, AnInfinityAloneIsSaidFirstWithItsPlace) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("x", at::ones({4}));
  target.add("x", at::tensor({1.0F, 1.5F, INFINITY, 1.0F}));
  const std::string text = report_text(compare_runs(baseline, target));
  EXPECT_THAT(text, HasSubstr("\n    unequal infinities: 1; 2 of 4 elements differ, the most at [2]: 1 against inf; "));
  EXPECT_THAT(text, HasSubstr("error inf: what is NaN or infinite on one side only makes it so"));
  EXPECT_THAT(text, Not(HasSubstr("NaN on one side only: ")));
}

TEST(ReportTextTest, AJumpFromNoErrorAtAllIsNoInfinity) {
  RunFolder baseline;
  RunFolder target;
  baseline.add("x", at::tensor({1, 2}));
  target.add("x", at::tensor({1, 3}));
  EXPECT_THAT(report_text(compare_runs(baseline, target)),
              testing::ContainsRegex("error [1-9]\\.[0-9]+e-01, and none before it\n"));
}

TEST(ReportTextTest, WhatFailedSaysHowToSeeMore) {
  const std::string text = report_text(sample("attn"));
  EXPECT_THAT(text, HasSubstr("where in the tensors: --html FILE; another tolerance is set by --rule"));
  EXPECT_THAT(text, HasSubstr("the largest before it, or one rounding where that is larger"));
  TextOptions options;
  options.has_page = true;
  EXPECT_THAT(report_text(sample("attn"), options), Not(HasSubstr("--html")));
}

TEST(ReportTextTest, NoDifferenceAndNothingToCompareAreSaid) {
  RunFolder baseline;
  baseline.add("x", at::ones({2}));
  EXPECT_THAT(report_text(compare_runs(baseline, baseline)),
              HasSubstr("no difference: all 1 pairs have the same bits"));
  RunFolder other;
  other.add("y", at::ones({2}));
  const std::string text = report_text(compare_runs(baseline, other));
  EXPECT_THAT(text, HasSubstr("nothing to compare"));
  EXPECT_THAT(text, HasSubstr("--map"));
}

TEST(ReportTextTest, StepsHaveALineEach) {
  RunFolder baseline;
  RunFolder target;
  for (int step = 0; step < 3; ++step) {
    baseline.add("x", at::ones({2}), {.step = step});
    target.add("x", at::ones({2}) + (step == 2 ? 1 : 0), {.step = step});
  }
  const std::string text = report_text(compare_runs(baseline, target));
  EXPECT_THAT(text, HasSubstr("\n2            1          0       0       1        0  x / x / x\n"));
}

}  // namespace
}  // namespace dbg::compare
