// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a rules file may say.
#include "compare/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "dbg/error.h"
#include "support/temp_folder.h"

namespace dbg::compare {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Rules rules_of(const std::string& text) {
  const test::TempFolder folder;
  std::ofstream(folder / "rules") << text;
  Rules rules;
  rules.add_file((folder / "rules").string());
  return rules;
}

std::string refusal_of(const std::string& text) {
  try {
    rules_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RulesTest, TheFirstRuleThatIsFoundInTheNameCounts) {
  Rules rules;
  rules.add_tolerance("attn: rel <= 0.5");
  rules.add_tolerance("attn_out: rel <= 0.1");
  ASSERT_NE(rules.tolerance_of("my_attn_out"), nullptr);
  EXPECT_EQ(rules.tolerance_of("my_attn_out")->text(), "rel <= 0.5");
  EXPECT_EQ(rules.tolerance_of("mlp"), nullptr);
}

TEST(RulesTest, DimsOfTheMetaGoFirstUnlessTheRuleInsists) {
  const Rules rules = rules_of("dims x: s h\n\n# a comment\ntarget-dims! y: h s\n");
  EXPECT_EQ(rules.dims_of(Side::baseline, "x", "")->dims().size(), 2U);
  EXPECT_EQ(rules.dims_of(Side::baseline, "x", "a b c")->dims().size(), 3U);
  EXPECT_EQ(rules.dims_of(Side::target, "y", "a b c")->dims().size(), 2U);
  EXPECT_EQ(rules.dims_of(Side::baseline, "y", "a b c")->dims().size(), 3U);
  EXPECT_FALSE(rules.dims_of(Side::target, "z", ""));
}

TEST(RulesTest, TheHeadersExampleIsOfTheLanguage) {
  const std::string root = std::getenv("DBG_TEST_SOURCE_DIR");
  std::ifstream header(root + "/src/compare/rules.h");
  std::string line;
  std::string example;
  while (std::getline(header, line)) {
    if (line.rfind("//   ", 0) != 0) continue;
    example += std::regex_replace(line.substr(5), std::regex("  +[a-z].*$"), "") + "\n";
  }
  const Rules rules = rules_of(example);
  EXPECT_THAT(rules.ignored_tags(), ElementsAre("phase"));
  EXPECT_THAT(rules.name_maps(), ElementsAre(R"(layers\.(\d+) => blocks.\1)"));
  EXPECT_NE(rules.tolerance_of("attn_q"), nullptr);
}

TEST(RulesTest, WhatIsNoRuleIsRefusedWithItsLine) {
  EXPECT_THAT(refusal_of("\ntolerance x: rel <= 1\n"), HasSubstr("line 2: 'tolerance' begins no rule"));
  EXPECT_THAT(refusal_of("rule x rel <= 1"), HasSubstr("expected 'regex: tolerance'"));
  EXPECT_THAT(refusal_of("rule (: rel <= 1"), HasSubstr("rule '(: rel <= 1': '(' is no regex: missing )"));
  EXPECT_THAT(refusal_of("rule x: rell <= 1"), HasSubstr("'rell' is none of"));
  EXPECT_THAT(refusal_of("dims x: s h[zz]"), HasSubstr("'zz' is no axis"));
  EXPECT_THAT(refusal_of("map x"), HasSubstr("=>"));
  EXPECT_THAT(refusal_of("ignore-tag"), HasSubstr("no tag is named"));
  Rules rules;
  EXPECT_THROW(rules.add_file("not/there"), IoError);
}

}  // namespace
}  // namespace dbg::compare
