// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a filter answers: Python's answers, and none of Python's exceptions.
#include "dump/filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "dbg/error.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool keeps(std::string_view expression, TagList tags) {
  return Filter::parse(expression).matches(Tags(tags));
}

// --- The twin's facts ---

TEST(FilterTest, ActsOnACallTag) {
  EXPECT_TRUE(keeps("layer_id == 0", {{"name", "x"}, {"layer_id", 0}}));
  EXPECT_FALSE(keeps("layer_id == 0", {{"name", "x"}, {"layer_id", 1}}));
}

TEST(FilterTest, ActsOnTheName) {
  EXPECT_TRUE(keeps("name == 'attn'", {{"name", "attn"}}));
  EXPECT_FALSE(keeps("name == 'attn'", {{"name", "mlp"}}));
}

TEST(FilterTest, TakesAlternativesBySearch) {
  const Filter filter = Filter::parse(R"(search("attn|mlp", name))");
  EXPECT_TRUE(filter.matches(Tags{{"name", "layer.attn.out"}}));
  EXPECT_TRUE(filter.matches(Tags{{"name", "mlp_1"}}));
  EXPECT_FALSE(filter.matches(Tags{{"name", "embedding"}}));
}

TEST(FilterTest, TestsARangeBehindANoneTest) {
  const Filter filter = Filter::parse("layer_id is not None and 3 <= layer_id < 7");
  EXPECT_FALSE(filter.matches(Tags{{"layer_id", 2}}));
  EXPECT_TRUE(filter.matches(Tags{{"layer_id", 3}}));
  EXPECT_FALSE(filter.matches(Tags{{"layer_id", 7}}));
  EXPECT_FALSE(filter.matches(Tags{{"name", "x"}}));
  EXPECT_EQ(filter.mismatches(), 0u);
}

TEST(FilterTest, TakesAnUnknownNameForNone) {
  EXPECT_TRUE(keeps("nobody is None", {}));
  EXPECT_TRUE(keeps("nobody == None and not nobody", {}));
}

TEST(FilterTest, KeepsEverythingWhenBlank) {
  for (const char* const text : {"", " \t\n"}) {
    EXPECT_TRUE(Filter::parse(text).matches_everything());
    EXPECT_TRUE(keeps(text, {}));
  }
  EXPECT_TRUE(Filter().matches(Tags{}));
  EXPECT_FALSE(Filter::parse("True").matches_everything());
}

// --- Python's meaning, where C++'s differs or where it is easily got wrong ---

struct Case {
  const char* expression;
  bool kept;
};

class FilterMeaningTest : public ::testing::TestWithParam<Case> {};

TEST_P(FilterMeaningTest, IsPythons) {
  const Filter filter = Filter::parse(GetParam().expression);
  const Tags tags{{"name", "层.attn é"}, {"layer_id", 7},  {"minus", -7},
                  {"half", 0.5},         {"flag", true},   {"big", std::numeric_limits<std::int64_t>::max()},
                  {"line", "a\n"},       {"none", nullptr}};
  EXPECT_EQ(filter.matches(tags), GetParam().kept) << GetParam().expression;
  EXPECT_EQ(filter.mismatches(), 0u) << GetParam().expression;
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, FilterMeaningTest,
    ::testing::Values(Case{"minus // 2 == -4", true}, Case{"minus % 3 == 2", true}, Case{"minus % -3 == -1", true},
                      Case{"7 // -2 == -4", true}, Case{"-7.5 // 2 == -4.0", true}, Case{"-7.5 % 2 == 0.5", true},
                      Case{"5.5 // -0.5 == -11", true}, Case{"flag + flag == 2", true}, Case{"flag == 1.0", true},
                      Case{"big + 1 > big", true}, Case{"big * 2 // 2 == big", true},
                      Case{"big == 9223372036854775808.0", false}, Case{"big < 9223372036854775808.0", true},
                      Case{"9007199254740993 == 9007199254740992.0", false},
                      Case{"9007199254740992.0 == 9007199254740993", false}, Case{"9223372036854775808.0 > big", true},
                      Case{"-9223372036854775808 < -big", true}, Case{"0x1F == 0o37 == 0b1_1111 == 3_1", true},
                      Case{"1e999 > big", true}, Case{"-1e999 < -big", true}, Case{"half == .5 == 5e-1", true},
                      Case{"--minus == minus", true}, Case{"- 7 == minus", true}, Case{"2 + 3 * 4 - 5 % 3 == 12", true},
                      Case{"10 - 4 - 3 == 3", true}, Case{"8 // 4 // 2 == 1", true}, Case{"not layer_id - 7", true},
                      Case{"1 if flag else 0", true}, Case{"layer_id==7and flag", true}));

INSTANTIATE_TEST_SUITE_P(
    Comparisons, FilterMeaningTest,
    ::testing::Values(Case{"1 < layer_id < 10 > 9", true}, Case{"1 < layer_id > 8", false},
                      Case{"9 < 2 < layer_id", false}, Case{"1 == True != 2", true}, Case{"'1' == 1", false},
                      Case{"none == False", false}, Case{"(1, 2) < (1, 3)", true}, Case{"(1, 2) < (1, 2, 0)", true},
                      Case{"(1, 2) == [1, 2]", false}, Case{"{1, 2} < {1, 2, 3}", true},
                      Case{"{2, 1, 1.0} == {1, 2}", true}, Case{"{1, 2} <= {1, 3}", false},
                      Case{"len({1, True, 1.0}) == 1", true}, Case{"'Z' < 'a' < 'é' < '层' < '😀'", true},
                      Case{"'' < 'a' < 'aa'", true}, Case{"1 in (1.0,)", true}, Case{"layer_id in [7]", true},
                      Case{"(1, 2) in {(1, 2)}", true}, Case{"'tt' in name", true}, Case{"'' in ''", true},
                      Case{"'x' not in name", true}, Case{"not 'x' in name", true}, Case{"flag is True", true},
                      Case{"layer_id is not True", true}, Case{"None is none", true},
                      Case{"(none == None) is True", true}, Case{"1 < 2 == True", false},
                      Case{"(1 < 2) == True", true}));

INSTANTIATE_TEST_SUITE_P(
    Logic, FilterMeaningTest,
    ::testing::Values(Case{"(none or 'x') == 'x'", true}, Case{"(flag and 0) == 0", true}, Case{"'' or []", false},
                      Case{"(0,) and [0]", true}, Case{"()", false}, Case{"not ()", true}, Case{"'False'", true},
                      Case{"-0.0", false}, Case{"flag or none < 3", true}, Case{"none and none < 3", false},
                      Case{"not flag or layer_id", true}, Case{"(3 if none else 4) == 4", true},
                      Case{"1 if 0 else 0 if 1 else 1", false}, Case{"search('a', name) is not None", true},
                      Case{"search('zz', name) is None", true}, Case{"search('a', name) == True", false},
                      Case{"match('attn', name) is None", true}, Case{"match('.[.]a', name) and 1", true}));

INSTANTIATE_TEST_SUITE_P(
    Texts, FilterMeaningTest,
    ::testing::Values(Case{"len(name) == 8", true}, Case{"name[0] == '层' and name[-1] == 'é'", true},
                      Case{"name[::-1] == 'é ntta.层'", true}, Case{"name[2:6] == 'attn'", true},
                      Case{"name[-100:1] == '层'", true}, Case{"name[1::3] == '.t'", false},
                      Case{"name[1::3] == '.té'", true}, Case{"name[5:1:-2] == 'nt'", true}, Case{"name[9:]", false},
                      Case{"(1, 2, 3)[1:] == (2, 3)", true}, Case{"[1, 2, 3][::-1] == [3, 2, 1]", true},
                      Case{"(1, 2)[True] == 2", true}, Case{"name.startswith('层.')", true},
                      Case{"name.startswith(('x', '层'))", true}, Case{"name.startswith(())", false},
                      Case{"name.endswith('')", true}, Case{"name[2:].startswith('attn')", true},
                      Case{"'ab' + \"cd\" == 'abcd' == 'a' 'bcd'", true}, Case{"'ab' * 2 == 2 * 'ab' == 'abab'", true},
                      Case{"[0] * 3 == [0, 0, 0]", true}, Case{"(1,) + (2,) == (1, 2)", true},
                      Case{"'x' * -1 == ''", true}, Case{R"('\x41\101\u00e9\U0001f600\t' == 'AAé😀	')", true},
                      Case{R"(r'\n' == '\\n')", true}, Case{R"('\q' == '\\q')", true},
                      Case{"'''a'b''' == \"a'b\"", true}, Case{"{1, 2} - {2} == {1}", true},
                      Case{"line == 'a\\\n\\n'", true}, Case{"name.contains('attn')", true}));

INSTANTIATE_TEST_SUITE_P(Blanks, FilterMeaningTest,
                         ::testing::Values(Case{"  flag  # a comment", true}, Case{"\n flag \n", true},
                                           Case{"(flag and\n  # why\n  layer_id)", true},
                                           Case{"flag and \\\n layer_id", true}, Case{"(\n1,\n2,\n)", true}));

// --- What has no answer ---

class FilterMismatchTest : public ::testing::TestWithParam<Case> {};

TEST_P(FilterMismatchTest, IsFalseAndCounted) {
  const test::LogCapture log;
  const Filter filter = Filter::parse(GetParam().expression);
  const Tags tags{{"name", "x"}, {"layer_id", 7}, {"big", std::numeric_limits<std::int64_t>::max()}};
  EXPECT_EQ(filter.matches(tags), GetParam().kept) << GetParam().expression;
  EXPECT_EQ(filter.mismatches(), 1u) << GetParam().expression;
}

INSTANTIATE_TEST_SUITE_P(
    All, FilterMismatchTest,
    ::testing::Values(Case{"none < 3", false}, Case{"not none < 3", true}, Case{"name >= 1", false},
                      Case{"(1, 'a') < (1, 2)", false}, Case{"3 in name", false}, Case{"3 not in name", false},
                      Case{"'a' in 3", false}, Case{"[1] in {1}", false}, Case{"{[1], 2}", false},
                      Case{"none % 2 == 0", false}, Case{"none % 2 != 0", false}, Case{"layer_id // 0", false},
                      Case{"layer_id % 0.0", false}, Case{"name + 1", false}, Case{"-name == 1", false},
                      Case{"+name == 1", false}, Case{"len(layer_id) == 1", false}, Case{"name[5] == 'x'", false},
                      Case{"layer_id[0]", false}, Case{"name['a':]", false}, Case{"name[::0]", false},
                      Case{"search('x', layer_id)", false}, Case{"match('x', none)", false},
                      Case{"none.startswith('x')", false}, Case{"name.startswith(1)", false},
                      Case{"name.endswith(['x'])", false}, Case{"name.contains(1)", false}, Case{"{1}[0]", false},
                      Case{"search('x', name) < 1", false}, Case{"(none + 1, 2) == 3", false},
                      Case{"none < 3 or layer_id", true}, Case{"'a' * 100000", false}, Case{"big * big * big", false}));

INSTANTIATE_TEST_SUITE_P(NotEvaluated, FilterMeaningTest,
                         ::testing::Values(Case{"1 // 0 if none else 3", true},
                                           Case{"none is None or none < 3", true}));

TEST(FilterTest, WarnsOnceWithValuesAndColumn) {
  const test::LogCapture log;
  const Filter filter = Filter::parse("name and layer_id < 3");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(filter.matches(Tags{{"name", "x"}}));
  EXPECT_EQ(filter.mismatches(), 100u);
  const auto lines = log.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].level, LogLevel::warning);
  EXPECT_THAT(lines[0].text, AllOf(HasSubstr("`name and layer_id < 3`"), HasSubstr("column 19"), HasSubstr("'<'"),
                                   HasSubstr("None and 3")));
}

TEST(FilterTest, CountsTogetherWithItsCopies) {
  const test::LogCapture log;
  const Filter filter = Filter::parse("layer_id < 3");
  const Filter copy = filter;
  copy.matches(Tags{});
  EXPECT_EQ(filter.mismatches(), 1u);
}

// --- Strangers' text ---

TEST(FilterTest, BoundsNestingAndLength) {
  const auto nested = [](int depth, const char* open, const char* close) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += open;
    text += "1";
    for (int i = 0; i < depth; ++i) text += close;
    return text;
  };
  EXPECT_TRUE(keeps(nested(90, "(", ")"), {}));
  for (const auto& [open, close] :
       {std::pair{"(", ")"}, {"[", "]"}, {"-", ""}, {"not ", ""}, {"len(", ")"}, {"1 if 1 else ", ""}, {"x[", "]"}}) {
    EXPECT_THROW(Filter::parse(nested(5000, open, close)), ConfigError) << open;
  }
  // Nests without brackets, so that only the depth of the tree can stop it.
  EXPECT_TRUE(keeps("0" + nested(300, "+x", ""), {{"x", 1}, {"x1", 0}}));
  EXPECT_THROW(Filter::parse("x" + nested(5000, "+x", "")), ConfigError);
  EXPECT_THROW(Filter::parse("x" + nested(5000, "[0]", "")), ConfigError);
  EXPECT_TRUE(keeps("x" + nested(2000, " or x", ""), {{"x1", 1}}));  // wide, not deep
  EXPECT_THROW(Filter::parse(std::string(20000, ' ') + "1"), ConfigError);
}

TEST(FilterTest, TakesTextThatIsNotUtf8) {
  const Tags tags{{"name", "a\xff\xc3"}};
  EXPECT_TRUE(Filter::parse("len(name) == 3 and name[0] == 'a' and name[::-1][2] == 'a'").matches(tags));
  EXPECT_FALSE(Filter::parse("search('^a..$', name)").matches(tags));
}

TEST(FilterTest, AnswersFromManyThreadsAtOnce) {
  const test::LogCapture log;
  const Filter filter = Filter::parse(R"(search("a+b", name) or layer_id < 3)");
  std::atomic<int> kept{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) kept += filter.matches(Tags{{"name", i % 2 == 0 ? "xaab" : "xx"}}) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kept.load(), 1000);
  EXPECT_EQ(filter.mismatches(), 1000u);
}

}  // namespace
}  // namespace dbg
