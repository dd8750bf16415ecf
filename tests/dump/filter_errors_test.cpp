// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a wrong expression is told: the column, the reason by name, the way round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "dbg/error.h"
#include "dump/filter.h"

namespace dbg {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal_of(std::string_view expression) {
  try {
    Filter::parse(expression);
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

struct Wrong {
  const char* expression;
  int column;
  const char* reason;  // a part of it
};

class FilterErrorsTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(FilterErrorsTest, NamesColumnAndReason) {
  const Wrong& wrong = GetParam();
  const std::string message = refusal_of(wrong.expression);
  EXPECT_THAT(message, StartsWith("filter: column " + std::to_string(wrong.column) + ": ")) << wrong.expression;
  EXPECT_THAT(message, HasSubstr(wrong.reason)) << wrong.expression;
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, FilterErrorsTest,
    ::testing::Values(Wrong{"layer_id ==", 12, "ends too early"}, Wrong{"(layer_id == 1", 1, "'(' without its ')'"},
                      Wrong{"layer_id == 1)", 14, "')' can't stand here"},
                      Wrong{"layer_id in [1, 2", 13, "'[' without its ']'"}, Wrong{"{1, 2", 1, "'{' without its '}'"},
                      Wrong{"layer_id 3", 10, "'3' can't stand here"}, Wrong{"name 'x'", 6, "a text can't stand here"},
                      Wrong{"== 3", 1, "'==' can't stand here"}, Wrong{"a and or b", 7, "'or' can't stand here"},
                      Wrong{"a not b", 3, "unless 'in' follows"}, Wrong{"1 if flag", 10, "without its 'else'"},
                      Wrong{"'abc", 1, "without its closing quote"},
                      Wrong{"name == 'a\nb'", 9, "closing quote on the same line"},
                      Wrong{"name[1:2:3:4]", 5, "at most two ':'"}, Wrong{"name[]", 5, "an index is missing"},
                      Wrong{"name[1", 5, "'[' without its ']'"}, Wrong{"name[1 2]", 8, "'2' can't stand here"},
                      Wrong{"(,)", 2, "',' can't stand here"}, Wrong{"012 == 1", 1, "octal: 0o17"},
                      Wrong{"1__0", 1, "between two digits"}, Wrong{"0x", 1, "without digits"},
                      Wrong{"3layers", 1, "letters behind it"}, Wrong{"'\\x4'", 2, "2 hexadecimal digits"},
                      Wrong{"'\\ud800'", 2, "surrogate"}, Wrong{"flag\nname", 5, "second line"},
                      Wrong{"a\x01", 2, "control character"}, Wrong{"a\xff", 2, "not UTF-8"},
                      Wrong{"name == 層 3", 11, "'3' can't stand here"}, Wrong{"name.", 6, "ends too early"},
                      Wrong{"class == 1", 1, "'class' can't stand here"}));

INSTANTIATE_TEST_SUITE_P(
    NotOfTheLanguage, FilterErrorsTest,
    ::testing::Values(
        Wrong{"name = 'x'", 6, "write '=='"}, Wrong{"a && b", 3, "write 'and'"}, Wrong{"a || b", 3, "write 'or'"},
        Wrong{"!a", 1, "write 'not'"}, Wrong{"a & 1", 3, "(bits)"}, Wrong{"a | b", 3, "(bits)"},
        Wrong{"~a", 1, "(bits)"}, Wrong{"a ^ b", 3, "(bits)"}, Wrong{"a << 1", 3, "(shift)"},
        Wrong{"a ** 2", 3, "(power)"}, Wrong{"a / 2", 3, "use '//'"}, Wrong{"a @ b", 3, "(matrix product)"},
        Wrong{"(a := 3)", 4, "(assignment)"}, Wrong{"a <> b", 3, "write '!='"}, Wrong{"a; b", 2, "a second statement"},
        Wrong{"...", 1, "'...'"}, Wrong{"a, b", 2, "join conditions by 'and' or 'or'"},
        Wrong{"lambda: 1", 1, "'lambda' is not part"}, Wrong{"[x for x in (1, 2)]", 4, "comprehension"},
        Wrong{"any(x for x in y)", 1, "any() is not part"}, Wrong{"(x for x in y)", 4, "comprehension"},
        Wrong{"(*a, 1)", 2, "(unpacking)"}, Wrong{"{}", 1, "dict"}, Wrong{"{1: 2}", 1, "dict"},
        Wrong{"f'{a}'", 1, "f-string"}, Wrong{"b'a'", 1, "bytes"}, Wrong{"3j", 1, "complex"},
        Wrong{"99999999999999999999", 1, "beyond 64 bits"}, Wrong{"name.upper()", 6, "'.upper' is not part"},
        Wrong{"name.startswith", 6, "must be called"}, Wrong{"name.startswith('a', 1)", 6, "takes one argument"},
        Wrong{"str(layer_id)", 1, "str() is not part"}, Wrong{"len(a, b)", 1, "takes one argument"},
        Wrong{"(name)(1)", 7, "can be called"}, Wrong{"a is 3", 3, "compare by '=='"}, Wrong{"a is not b", 3, "'!='"},
        Wrong{"search", 1, "is a function"}, Wrong{"search('a')", 1, "takes a pattern and a text"},
        Wrong{"search('a', name, 2)", 1, "(?i)"}, Wrong{"search('a', name, flags=2)", 19, "no argument by name"},
        Wrong{"search(name, 'a')", 8, "must be a text"}, Wrong{"search('a', name)[0]", 18, "has no parts"},
        Wrong{"'%d' % 3", 6, "formatting"}, Wrong{"name[1, 2]", 7, "index with ','"},
        Wrong{"name == “x”", 9, "plain quotation"}, Wrong{"await x", 1, "'await'"}, Wrong{"'\\N{DASH}'", 2, "\\N{...}"},
        Wrong{"__debug__", 1, "can't stand here"}));

INSTANTIATE_TEST_SUITE_P(
    Patterns, FilterErrorsTest,
    ::testing::Values(
        Wrong{"search('a(?=b)', name)", 10, "lookahead"}, Wrong{"search('(?!b)', name)", 9, "lookahead"},
        Wrong{"search(r'(?<=a)b', name)", 10, "lookbehind"}, Wrong{"search(r'x(?<!a)b', name)", 11, "lookbehind"},
        Wrong{R"(search(r'(a)\1', name))", 13, "backreference"},
        Wrong{"search('(?P<a>x)(?P=a)', name)", 17, "backreference"}, Wrong{"search('(?>a)', name)", 9, "atomic"},
        Wrong{"search('a++', name)", 10, "possessive"}, Wrong{"search('(a)(?(1)b|c)', name)", 12, "conditional"},
        Wrong{R"(search(r'a\b', name))", 11, "(?a)"}, Wrong{R"(search(r'\B', name))", 10, "\\B"},
        Wrong{"search('(?x)a b', name)", 11, "verbose"}, Wrong{"search('a$b', name)", 10, "'$' with more behind it"},
        Wrong{"search('(a$)*', name)", 11, "'$'"}, Wrong{"search('*a', name)", 9, "nothing to repeat"},
        Wrong{"search('a**', name)", 11, "repeat of a repeat"}, Wrong{"search('^*', name)", 10, "nothing to repeat"},
        Wrong{"search('(a', name)", 9, "'(' without its ')'"}, Wrong{"search('a)', name)", 10, "')' without its '('"},
        Wrong{"search('[a', name)", 9, "'[' without its ']'"},
        Wrong{"search('[b-a]', name)", 10, "range of characters"}, Wrong{R"(search(r'[^\Wa]', name))", 10, "\\W"},
        Wrong{"search('a{2000}', name)", 11, "more than 1000 repeats"},
        Wrong{"search('a{3,2}', name)", 10, "above its greatest"}, Wrong{R"(search(r'\q', name))", 10, "no escape"},
        Wrong{R"(search(r'[\A]', name))", 11, "no escape of a class"}, Wrong{R"(search('\\q', name))", 8, "no escape"},
        Wrong{"search('a' '(?=b)', name)", 8, "lookahead"}, Wrong{"search('a(?i)b', name)", 10, "at the beginning"},
        Wrong{"search('(?L)a', name)", 11, "not a flag"}, Wrong{"search('(?P<a>x)(?P<a>y)', name)", 17, "two groups"},
        Wrong{"search('((a{1000}){1000}){1000}', name)", 9, "too large"},
        Wrong{"search('é(?=b)', name)", 10, "lookahead"}));

TEST(FilterErrorsTest, DrawsACaretBelowThePlace) {
  EXPECT_EQ(refusal_of("层 ** 2"),
            "filter: column 3: '**' (power) is not part of the language: multiply\n  层 ** 2\n    ^");
}

TEST(FilterErrorsTest, ShowsTheSurroundingsOfALongExpression) {
  std::string expression = "layer_id in (";
  for (int i = 0; i < 200; ++i) expression += std::to_string(i) + ", ";
  expression += "1 & 2)";
  const std::string message = refusal_of(expression);
  const std::size_t first = message.find('\n');
  const std::string shown = message.substr(first + 1, message.find('\n', first + 1) - first - 1);
  const std::string caret = message.substr(message.rfind('\n') + 1);
  EXPECT_LT(shown.size(), 120u);
  EXPECT_EQ(shown[caret.size() - 1], '&') << message;
}

TEST(FilterErrorsTest, KeepsControlCharactersOutOfTheMessage) {
  EXPECT_THAT(refusal_of("a\t&\tb"), ::testing::HasSubstr("\n  a & b\n    ^"));
}

}  // namespace
}  // namespace dbg
