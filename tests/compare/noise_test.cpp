// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A second trusted run as the floor of what counts.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compare/run_folder.h"
#include "support/special_numbers.h"

namespace dbg {
namespace {

using test::compare_runs;
using test::kNan;
using test::RunFolder;
using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor counting(std::int64_t elements) {
  return at::arange(1, elements + 1, at::kFloat);
}

TEST(NoiseTest, TheNoiseOfASecondRunIsNoFault) {
  RunFolder baseline;
  RunFolder target;
  RunFolder noise;
  for (const char* name : {"quiet", "loud"}) {
    baseline.add(name, counting(100));
    noise.add(name, counting(100) * 1.01);
  }
  target.add("quiet", counting(100) * 1.02);
  target.add("loud", counting(100) * 1.2);
  const auto noisy = [&](CompareOptions& options) { options.noise = noise.path(); };
  const CompareReport report = compare_runs(baseline, target, noisy);
  EXPECT_EQ(report.pairs.at(0).verdict, Verdict::passed);
  EXPECT_TRUE(report.pairs.at(0).is_below_noise);
  EXPECT_THAT(report.pairs.at(0).reason, HasSubstr("below the noise"));
  EXPECT_EQ(report.pairs.at(1).verdict, Verdict::failed);
  EXPECT_THAT(report.pairs.at(1).reason, HasSubstr("times the noise"));
}

TEST(NoiseTest, PairsWithoutNoiseAreHeldAgainstTheirTolerance) {
  RunFolder baseline;
  RunFolder noise;
  for (const char* name : {"first", "second"}) baseline.add(name, counting(4));
  noise.add("first", counting(4) * 1.01);
  RunFolder target;
  for (const char* name : {"first", "second"}) target.add(name, counting(4) * 1.01);
  const auto noisy = [&](CompareOptions& options) { options.noise = noise.path(); };
  const CompareReport report = compare_runs(baseline, target, noisy);
  EXPECT_EQ(report.pairs.at(0).verdict, Verdict::passed);
  EXPECT_EQ(report.pairs.at(1).verdict, Verdict::failed);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("1 of 2 pairs have no partner in the noise folder")));
}

TEST(NoiseTest, NanIsAboveAnyNoiseAndNoNoiseItself) {
  RunFolder baseline;
  RunFolder target;
  RunFolder noise;
  baseline.add("finite", at::tensor({1.0, 2.0}));
  noise.add("finite", at::tensor({5.0, 2.0}));
  target.add("finite", at::tensor({1.0, kNan}));
  baseline.add("odd", at::tensor({1.0, 2.0}));
  noise.add("odd", at::tensor({1.0, kNan}));
  target.add("odd", at::tensor({1.0, kNan}));
  const auto noisy = [&](CompareOptions& options) { options.noise = noise.path(); };
  const CompareReport report = compare_runs(baseline, target, noisy);
  EXPECT_EQ(report.pairs.at(0).verdict, Verdict::failed);
  EXPECT_EQ(report.pairs.at(1).verdict, Verdict::failed);
  EXPECT_FALSE(report.pairs.at(1).noise_error);
  EXPECT_THAT(report.pairs.at(1).note, HasSubstr("the second trusted run has no measure here"));
}

}  // namespace
}  // namespace dbg
