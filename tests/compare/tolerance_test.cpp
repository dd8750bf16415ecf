// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The language of tolerances and the table by dtype.
#include "compare/tolerance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "base/dtype.h"
#include "dbg/error.h"

namespace dbg::compare {
namespace {

using testing::HasSubstr;

Measures measures(double rel, double max_abs) {
  Measures all;
  all.rel_diff = rel;
  all.max_abs = max_abs;
  return all;
}

TEST(ToleranceTest, AndBindsCloserThanOr) {
  const Tolerance tolerance = Tolerance::parse("rel<=1e-3 or max_abs < 2 and cosine >= 0.5");
  EXPECT_TRUE(tolerance.admits(measures(1e-3, 100)));
  EXPECT_TRUE(tolerance.admits(measures(1, 1.5)));
  EXPECT_FALSE(tolerance.admits(measures(1, 2)));
  Measures opposite = measures(1, 1.5);
  opposite.cosine = 0.4;
  EXPECT_FALSE(tolerance.admits(opposite));
  EXPECT_EQ(tolerance.text(), "rel <= 1e-3 or max_abs < 2 and cosine >= 0.5");
}

TEST(ToleranceTest, WhatIsNotFinitePassesNothing) {
  const Tolerance tolerance = Tolerance::parse("rel <= 1e30");
  EXPECT_FALSE(tolerance.admits(measures(std::numeric_limits<double>::infinity(), 0)));
  EXPECT_FALSE(tolerance.admits(measures(std::nan(""), 0)));
}

TEST(ToleranceTest, WhatIsNoToleranceIsRefusedWithTheReason) {
  const auto reason = [](const char* text) {
    try {
      Tolerance::parse(text);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(reason(""), HasSubstr("it is empty"));
  EXPECT_THAT(reason("rell <= 1"), HasSubstr("'rell' is none of rel, max_abs"));
  EXPECT_THAT(reason("rel == 1"), HasSubstr("'==' is none of"));
  EXPECT_THAT(reason("rel <= x"), HasSubstr("'x' is no number"));
  EXPECT_THAT(reason("rel <= nan"), HasSubstr("is no number"));
  EXPECT_THAT(reason("rel <= 1 max_abs <= 1"), HasSubstr("where 'and' or 'or' is wanted"));
  EXPECT_THAT(reason("rel <= 1 or"), HasSubstr("a condition is"));
}

TEST(ToleranceTest, CoarserDtypesAllowMore) {
  EXPECT_TRUE(default_tolerance(at::kFloat).admits(measures(5e-11, 1)));
  EXPECT_FALSE(default_tolerance(at::kFloat).admits(measures(1.9e-8, 1)));
  EXPECT_TRUE(default_tolerance(at::kBFloat16).admits(measures(1.9e-8, 1)));
  Measures one_differs = measures(0, 1);
  one_differs.differing_fraction = 1e-9;
  EXPECT_FALSE(default_tolerance(at::kLong).admits(one_differs));
}

TEST(ToleranceTest, TheDocumentsTableIsTheCodes) {
  std::ifstream document(std::string(std::getenv("DBG_TEST_SOURCE_DIR")) + "/docs/compare.md");
  std::string line;
  int rows = 0;
  while (std::getline(document, line)) {
    for (const at::ScalarType dtype : {at::kDouble, at::kComplexDouble, at::kFloat, at::kComplexFloat, at::kHalf,
                                       at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
      std::string name = base::dtype_name(dtype);
      if (name == "float8_e4m3fn") name = "float8_e4m3";
      const std::size_t cell = line.find(" | ");
      if (line.rfind("| ", 0) != 0 || cell == std::string::npos) continue;
      const std::string first = " " + line.substr(2, cell - 2) + ",";
      if (first.find(" " + name + ",") == std::string::npos) continue;
      EXPECT_THAT(line, HasSubstr("`" + default_tolerance(dtype).text() + "`"));
      ++rows;
    }
  }
  EXPECT_EQ(rows, 8);
}

TEST(ToleranceTest, TheCoarserDtypeIsTheOneOfFewerDigitsThenOfTheSmallerRange) {
  EXPECT_EQ(coarser_of(at::kFloat, at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(coarser_of(at::kBFloat16, at::kHalf), at::kBFloat16);
  EXPECT_EQ(coarser_of(at::kDouble, at::kFloat), at::kFloat);
  EXPECT_EQ(coarser_of(at::kLong, at::kHalf), at::kHalf);
  EXPECT_EQ(rounding_of(at::kInt), 0);
  EXPECT_DOUBLE_EQ(rounding_called("bfloat16", "float32"), rounding_of(at::kBFloat16));
}

}  // namespace
}  // namespace dbg::compare
