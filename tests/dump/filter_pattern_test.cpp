// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Patterns mean what Python's `re` means by them, also where RE2 by itself means something else.
#include "dump/filter_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace dbg::filter {
namespace {

struct Found {
  const char* pattern;
  std::string_view text;
  bool by_search;
  bool by_match;
};

class FilterPatternTest : public ::testing::TestWithParam<Found> {};

TEST_P(FilterPatternTest, FindsWhatPythonFinds) {
  const auto& [python_pattern, text, by_search, by_match] = GetParam();
  const Pattern pattern(python_pattern);
  EXPECT_EQ(pattern.search(text), by_search) << python_pattern << " in " << text;
  EXPECT_EQ(pattern.match(text), by_match) << python_pattern << " in " << text;
}

INSTANTIATE_TEST_SUITE_P(EndOfText, FilterPatternTest,
                         ::testing::Values(Found{"a$", "ba\n", true, false}, Found{"a$", "ba", true, false},
                                           Found{"a$", "ba\n\n", false, false}, Found{R"(a\Z)", "ba\n", false, false},
                                           Found{R"(a\Z)", "ba", true, false}, Found{"(?:a$|b)", "xa\n", true, false},
                                           Found{"(?:a$)?", "xa\n", true, true}, Found{"(?m)a$", "a\nb", true, true},
                                           Found{"(?m)^b$", "a\nb\n", true, false}, Found{"^b", "a\nb", false, false},
                                           Found{R"(\Ab)", "ab", false, false}));

INSTANTIATE_TEST_SUITE_P(
    Categories, FilterPatternTest,
    ::testing::Values(Found{R"(\d)", "٣", true, true}, Found{R"((?a)\d)", "٣", false, false},
                      Found{R"(\w)", "层", true, true}, Found{R"((?a)\w)", "层", false, false},
                      Found{R"(\W)", "层", false, false}, Found{R"(\w)", "Ⅷ", true, true},
                      Found{R"(\s)", "\xc2\xa0", true, true}, Found{R"((?a)\s)", "\xc2\xa0", false, false},
                      Found{R"(\s)", "\v", true, true}, Found{R"(\s)", "\x1c", true, true},
                      Found{R"((?a)\s)", "\x1c", false, false}, Found{R"(\S)", "\xe3\x80\x80", false, false},
                      Found{R"(\D)", "٣", false, false}, Found{R"([\W\d]x)", ".x", true, true},
                      Found{R"([^\W])", ".a", true, false}, Found{R"([^\d\s])", "٣ ", false, false},
                      Found{R"((?a)[^\W\d_])", "1_a", true, false}, Found{R"((?a:\w)層)", "層層", false, false},
                      Found{R"((?a)\battn\b)", "层attn.q", true, false},
                      Found{R"((?a)\battn\b)", "xattn", false, false}));

INSTANTIATE_TEST_SUITE_P(
    Case, FilterPatternTest,
    ::testing::Values(Found{"(?i)ATTN", "attn", true, true}, Found{"(?i)é", "É", true, true},
                      Found{"(?i)я", "Я", true, true}, Found{"(?i)k", "\xe2\x84\xaa", true, true},  // the Kelvin sign
                      Found{"(?ai)k", "\xe2\x84\xaa", false, false},                                //
                      Found{"(?i)i", "\xc4\xb0", true, true},      // a dotted capital i
                      Found{"(?i)[a-z]", "\xc4\xb1", true, true},  // a dotless small one
                      Found{"(?i)[^a-z]", "\xc4\xb1", false, false}, Found{"(?ai)[^a-z]", "Q", false, false},
                      Found{"a(?i:b)c", "aBc", true, true}, Found{"a(?i:b)c", "aBC", false, false},
                      Found{"(?i)a(?-i:b)", "AB", false, false}, Found{"attn", "ATTN", false, false}));

INSTANTIATE_TEST_SUITE_P(Syntax, FilterPatternTest,
                         ::testing::Values(Found{"a{,2}b", "aab", true, true}, Found{"a{,2}b", "a{,2}b", true, false},
                                           Found{"a{x", "a{x", true, true}, Found{"a{}", "a{}", true, true},
                                           Found{"^a{2,}$", "aaa", true, true}, Found{"^a{2}$", "aaa", false, false},
                                           Found{"[]a]", "]", true, true}, Found{"[^]a]", "a]", false, false},
                                           Found{"[a-]", "-", true, true}, Found{"[[:alpha:]]", "a]", true, true},
                                           Found{"[[:alpha:]]", "z", false, false}, Found{R"([\b])", "\b", true, true},
                                           Found{R"(\056)", ".", true, true},
                                           Found{R"(\x2e\u002e\U0000002e)", "...", true, true},
                                           Found{R"(\0)", std::string_view("\0", 1), true, true},
                                           Found{"(?#comment)a", "a", true, true},
                                           Found{"(?P<layer>a)b", "ab", true, true}, Found{"a.c", "a\nc", false, false},
                                           Found{"(?s)a.c", "a\nc", true, true}, Found{"(?s:.)b", "\nb", true, true},
                                           Found{"a.c", "a层c", true, true}, Found{"a*?b", "aab", true, true},
                                           Found{"(?:ab){2}", "xabab", true, false}, Found{R"(\.)", "a.b", true, false},
                                           Found{R"(a\-b)", "a-b", true, true}, Found{"x]}", "x]}", true, true}));

// Choices of plain texts go another way than the rest.
INSTANTIATE_TEST_SUITE_P(PlainTexts, FilterPatternTest,
                         ::testing::Values(Found{"attn", "layer.attn", true, false},
                                           Found{"attn|mlp", "mlp", true, true},
                                           Found{"(attn|mlp)", "x.mlp", true, false},
                                           Found{"^attn", "x.attn", false, false},
                                           Found{"^(attn|mlp)", "mlp.x", true, true}, Found{"", "", true, true},
                                           Found{"a|", "b", true, true}, Found{"^", "b", true, true},
                                           Found{R"(\.attn)", "x.attn", true, false}, Found{"attn", "", false, false},
                                           Found{"attnattn", "attn", false, false}));

TEST(FilterPatternTest, NeedsNoAutomatonForPlainTexts) {
  EXPECT_EQ(translate_pattern("attn").literals, std::vector<std::string>{"attn"});
  EXPECT_EQ(translate_pattern("(attn|mlp)").literals, (std::vector<std::string>{"attn", "mlp"}));
  EXPECT_TRUE(translate_pattern("^attn").literals_at_start);
  EXPECT_TRUE(translate_pattern("at+n").literals.empty());
  EXPECT_TRUE(translate_pattern("(?i)attn").literals.empty());
}

TEST(FilterPatternTest, TakesLinearTimeWherePythonTakesExponential) {
  const Pattern pattern("(a*)*(a*)*b");
  EXPECT_FALSE(pattern.search(std::string(20000, 'a')));
}

TEST(FilterPatternTest, RefusesGroupsNestedTooDeep) {
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += '(';
  EXPECT_THROW(Pattern{deep}, PatternError);
}

}  // namespace
}  // namespace dbg::filter
