// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The landmarks of a run, from made-up pairs.
#include "compare/divergence.h"
#include "support/special_numbers.h"

#include <gtest/gtest.h>


namespace dbg::compare {
namespace {

using test::kInf;

PairReport pair(double error, Verdict verdict, std::int64_t step = 0, const char* dtype = "float32") {
  PairReport report;
  report.step = step;
  report.verdict = verdict;
  report.error = error;
  report.difference.compared = true;
  report.difference.dtype_a = report.difference.dtype_b = dtype;
  return report;
}

CompareReport follow(std::vector<PairReport> pairs) {
  CompareReport report;
  report.pairs = std::move(pairs);
  follow_error(report);
  return report;
}

TEST(DivergenceTest, FirstsAreInOrderWithTheLastGoodOneBefore) {
  const Divergence found =
      follow({pair(0, Verdict::same_bits), pair(2e-7, Verdict::passed), pair(3e-7, Verdict::passed),
              pair(4e-4, Verdict::failed), pair(5e-4, Verdict::failed)})
          .divergence;
  ASSERT_TRUE(found.first_bits && found.first_beyond && found.first_jump);
  EXPECT_EQ(found.first_bits->pair, 1U);
  EXPECT_EQ(found.first_bits->last_good, 0U);
  EXPECT_EQ(found.first_beyond->pair, 3U);
  EXPECT_EQ(found.first_beyond->last_good, 2U);
  EXPECT_EQ(found.first_jump->pair, 3U);
  EXPECT_EQ(found.first_jump->last_good, 2U);
}

TEST(DivergenceTest, EvenGrowthAndOneRoundingAreNoJump) {
  std::vector<PairReport> pairs;
  for (double error = 1e-7; error < 1e-3; error *= 3) pairs.push_back(pair(error, Verdict::passed));
  EXPECT_FALSE(follow(pairs).divergence.first_jump);
  EXPECT_FALSE(follow({pair(0, Verdict::same_bits), pair(7e-3, Verdict::passed, 0, "bfloat16")}).divergence.first_jump);
  EXPECT_TRUE(follow({pair(0, Verdict::same_bits), pair(7e-3, Verdict::passed)}).divergence.first_jump);
}

TEST(DivergenceTest, AnySmallerErrorBetweenDoesNotMakeALaterOneAJump) {
  EXPECT_FALSE(follow({pair(5e-7, Verdict::passed), pair(1e-7, Verdict::passed), pair(1e-6, Verdict::passed)})
                   .divergence.first_jump);
}

TEST(DivergenceTest, TheNoiseIsTheFloorOfAJump) {
  PairReport noisy = pair(0.04, Verdict::passed);
  noisy.noise_error = 0.01;
  EXPECT_FALSE(follow({noisy}).divergence.first_jump);
  noisy.error = 0.06;
  EXPECT_TRUE(follow({noisy}).divergence.first_jump);
}

TEST(DivergenceTest, AnInfiniteErrorJumpsOnce) {
  const CompareReport report =
      follow({pair(1e-7, Verdict::passed), pair(kInf, Verdict::failed), pair(kInf, Verdict::failed)});
  EXPECT_EQ(report.divergence.first_jump->pair, 1U);
  EXPECT_EQ(report.pairs[2].growth, 1);
}

TEST(DivergenceTest, EachStepIsARunOfItsOwnAndTheWholeIsOneToo) {
  const CompareReport report = follow({pair(0, Verdict::same_bits, 0), pair(1e-3, Verdict::failed, 0),
                                       pair(1e-3, Verdict::failed, 1), pair(0, Verdict::skipped, 1)});
  ASSERT_EQ(report.steps.size(), 2U);
  EXPECT_EQ(report.steps[0].divergence.first_jump->pair, 1U);
  EXPECT_EQ(report.steps[1].divergence.first_jump->pair, 2U);
  EXPECT_FALSE(report.steps[1].divergence.first_jump->last_good);
  EXPECT_EQ(report.steps[1].skipped, 1U);
  EXPECT_EQ(report.divergence.first_jump->pair, 1U);
}

TEST(DivergenceTest, ASkippedPairIsNoDifference) {
  PairReport skipped = pair(0, Verdict::skipped);
  skipped.difference.compared = false;
  const Divergence found = follow({skipped}).divergence;
  EXPECT_FALSE(found.first_bits || found.first_beyond || found.first_jump);
}

}  // namespace
}  // namespace dbg::compare
