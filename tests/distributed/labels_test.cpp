// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What may be a label, and the names made of one.
#include "distributed/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "dbg/error.h"

namespace dbg::distributed {
namespace {

using testing::HasSubstr;

std::string complaint_about(const std::string& name) {
  try {
    checked_group_name(name);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

TEST(LabelsTest, NoNameIsAnonymous) {
  EXPECT_EQ(checked_group_name(""), "anonymous");
  EXPECT_EQ(label_of(checked_group_name(""), "device"), "anonymous:device");
}

TEST(LabelsTest, LettersDigitsAndFourSigns) {
  EXPECT_EQ(checked_group_name("moe_ep.0-A:z9"), "moe_ep.0-A:z9");
  EXPECT_THAT(complaint_about("tp/0"), HasSubstr("has a '/' at byte 2"));
  EXPECT_THAT(complaint_about("t p"), HasSubstr("has the byte 0x20 at byte 1"));
  EXPECT_THAT(complaint_about("t\"p"), HasSubstr("has a '\"' at byte 1"));
  EXPECT_THAT(complaint_about("t\xc3\xbcp"), HasSubstr("has the byte 0xc3 at byte 1"));
  EXPECT_THAT(complaint_about(std::string("t\0p", 3)), HasSubstr("has the byte 0x00 at byte 1"));
}

TEST(LabelsTest, ALabelHasAtMost200Bytes) {
  EXPECT_EQ(label_of(checked_group_name(std::string(193, 'a')), "device").size(), 200U);
  EXPECT_THAT(complaint_about(std::string(194, 'a')), HasSubstr("has 194 bytes; at most 193"));
}

TEST(LabelsTest, OthersNamesAreMadeToFit) {
  EXPECT_EQ(sanitised_group_name("a b/c\xc3\xbc"), "a_b_c__");
  EXPECT_EQ(sanitised_group_name(std::string(300, 'x')), std::string(193, 'x'));
  EXPECT_EQ(sanitised_group_name(""), "anonymous");
}

TEST(LabelsTest, RanksReadAsRanges) {
  EXPECT_EQ(ranks_text({0}), "0");
  EXPECT_EQ(ranks_text({0, 1}), "0_1");
  EXPECT_EQ(ranks_text({0, 1, 2, 3}), "0-3");
  EXPECT_EQ(ranks_text({0, 1, 2, 8, 4, 5}), "0-2_8_4_5");
  EXPECT_EQ(ranks_text({1, 0}), "1_0");
}

TEST(LabelsTest, LongListsStayApartAndShort) {
  std::vector<int> even(500);
  for (int i = 0; i < 500; ++i) even[static_cast<std::size_t>(i)] = 2 * i;
  std::vector<int> other = even;
  other.back() += 2;
  EXPECT_LE(ranks_text(even).size(), 64U);
  EXPECT_THAT(ranks_text(even), testing::StartsWith("500ranks-"));
  EXPECT_NE(ranks_text(even), ranks_text(other));
}

TEST(LabelsTest, TheUniqueNameBeginsWithTheLabel) {
  EXPECT_EQ(unique_group_name("tp:cpu", {0, 1}, 3), "tp:cpu@0_1.g3");
}

}  // namespace
}  // namespace dbg::distributed
