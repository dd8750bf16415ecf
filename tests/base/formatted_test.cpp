// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Formatting through one compiled function says what fmt says.
#include "base/formatted.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace dbg {
namespace {

TEST(FormattedTest, IsWhatFmtSays) {
  const std::string text = "tp";
  const std::vector<int> ranks{0, 1};
  EXPECT_EQ(formatted("{}:{} has ranks [{}], {:.1f} s, {:>4}|", text, std::string_view("cpu"), fmt::join(ranks, ", "),
                      1.25, std::size_t{7}),
            "tp:cpu has ranks [0, 1], 1.2 s,    7|");
  EXPECT_EQ(formatted("nothing {{}}"), "nothing {}");
}

TEST(FormattedTest, BracesInAnArgumentAreNoFormat) {
  EXPECT_EQ(formatted("{}", "{} {x"), "{} {x");
}

TEST(FormattedTest, AFormatKnownAtRunTimeOnlyIsChecked) {
  EXPECT_THROW(vformatted("{", {}), fmt::format_error);
  EXPECT_THROW(vformatted("{}", {}), fmt::format_error);
}

}  // namespace
}  // namespace dbg
