// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// When progress is shown, on made-up clocks.
#include "cli/progress.h"

#include <gtest/gtest.h>

namespace dbg::cli {
namespace {

using std::chrono::milliseconds;

TEST(ProgressTest, IsSilentForASecondAndThenNotTooOften) {
  const Progress::Clock::time_point start{};
  Progress progress(start);
  EXPECT_FALSE(progress.line(10, 100, start + milliseconds(999)));
  EXPECT_FALSE(progress.has_shown());
  EXPECT_EQ(progress.line(20, 100, start + milliseconds(1000)), "20 of 100 pairs, 4 s left");
  EXPECT_TRUE(progress.has_shown());
  EXPECT_FALSE(progress.line(21, 100, start + milliseconds(1100)));
  EXPECT_EQ(progress.line(50, 100, start + milliseconds(2000)), "50 of 100 pairs, 2 s left");
  EXPECT_FALSE(progress.line(0, 100, start + milliseconds(3000)));
}

}  // namespace
}  // namespace dbg::cli
