// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which C++ value becomes which tag, and how it prints.
#include "dbg/tags.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dbg {
namespace {

TEST(TagViewTest, TextIsTextWhateverItIsMadeFrom) {
  const char* pointer = "pointer";
  char array[] = "array";
  const std::string string = "string";
  const std::string_view view = "view";
  for (const TagView tag : {TagView(pointer), TagView(array), TagView(string), TagView(view), TagView("literal")}) {
    EXPECT_EQ(tag.kind(), TagKind::text);
  }
  EXPECT_EQ(TagView(pointer).text(), "pointer");
  EXPECT_EQ(TagView(array).text(), "array");
  EXPECT_EQ(TagView(string).text(), "string");
  EXPECT_EQ(TagView(view).text(), "view");
  EXPECT_EQ(TagView(static_cast<char*>(array)).text(), "array");
}

TEST(TagViewTest, ANullTextPointerIsEmptyText) {
  const char* nothing = nullptr;
  EXPECT_EQ(TagView(nothing).kind(), TagKind::text);
  EXPECT_EQ(TagView(nothing).text(), "");
}

TEST(TagViewTest, TextMayHoldNul) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(TagView(text).text(), text);
  EXPECT_EQ(TagValue(text).view().text(), text);
}

TEST(TagViewTest, NullptrIsNone) {
  EXPECT_TRUE(TagView(nullptr).is_none());
  EXPECT_TRUE(TagView().is_none());
  EXPECT_EQ(TagView(nullptr).kind(), TagKind::none);
}

TEST(TagViewTest, OnlyBoolIsBoolean) {
  EXPECT_EQ(TagView(true).kind(), TagKind::boolean);
  EXPECT_TRUE(TagView(true).boolean());
  EXPECT_FALSE(TagView(false).boolean());
  EXPECT_EQ(TagView(1).kind(), TagKind::integer);
  const std::vector<bool> flags = {true};
  EXPECT_EQ(TagView(static_cast<bool>(flags[0])).kind(), TagKind::boolean);
}

TEST(TagViewTest, EveryIntegerTypeKeepsItsValue) {
  EXPECT_EQ(TagView(std::int8_t{-5}).integer(), -5);
  EXPECT_EQ(TagView(std::uint8_t{200}).integer(), 200);
  EXPECT_EQ(TagView(short{-300}).integer(), -300);
  EXPECT_EQ(TagView(4000000000U).integer(), 4000000000);
  EXPECT_EQ(TagView(std::numeric_limits<std::int64_t>::min()).integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(TagView(std::numeric_limits<std::int64_t>::max()).integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(TagView(7LL).integer(), 7);
  EXPECT_EQ(TagView(7ULL).kind(), TagKind::integer);
  EXPECT_EQ(TagView(std::size_t{9}).integer(), 9);
}

TEST(TagViewTest, AnIntegerBeyondInt64IsTheNearestReal) {
  const TagView largest(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(largest.kind(), TagKind::real);
  EXPECT_EQ(largest.real(), 18446744073709551616.0);
  const TagView first_beyond(std::uint64_t{1} << 63);
  EXPECT_EQ(first_beyond.kind(), TagKind::real);
  EXPECT_EQ(first_beyond.real(), 9223372036854775808.0);
  EXPECT_EQ(TagView((std::uint64_t{1} << 63) - 1).kind(), TagKind::integer);
}

TEST(TagViewTest, FloatsAreReals) {
  EXPECT_EQ(TagView(0.5F).kind(), TagKind::real);
  EXPECT_EQ(TagView(0.5F).real(), 0.5);
  EXPECT_EQ(TagView(0.1F).real(), static_cast<double>(0.1F));
  EXPECT_EQ(TagView(0.25L).real(), 0.25);
}

TEST(TagViewTest, CostsNothingToCopy) {
  EXPECT_TRUE(std::is_trivially_copyable_v<TagView>);
  EXPECT_TRUE(std::is_trivially_destructible_v<TagView>);
  EXPECT_EQ(sizeof(TagView), 16U) << "two registers";
  static_assert(TagView(3).integer() == 3, "usable in a constant expression");
}

// What a user's call looks like from the inside.
std::vector<std::pair<std::string, std::string>> take(TagList tags) {
  std::vector<std::pair<std::string, std::string>> taken;
  for (const TagRef& tag : tags) taken.emplace_back(tag.key, python_text(tag.value));
  return taken;
}

TEST(TagListTest, BracedTagsReachTheCallee) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const std::string name = "decode";
  const int layer = 3;
  EXPECT_EQ(take({{"layer_id", layer}, {"phase", "prefill"}}), (Pairs{{"layer_id", "3"}, {"phase", "prefill"}}));
  EXPECT_EQ(take({{"phase", name}, {"on", true}, {"off", nullptr}, {"scale", 0.5}}),
            (Pairs{{"phase", "decode"}, {"on", "True"}, {"off", "None"}, {"scale", "0.5"}}));
  EXPECT_EQ(take({{name, 1}}), (Pairs{{"decode", "1"}}));
  EXPECT_TRUE(take({}).empty());
}

TEST(TagsTest, KeepTheOrderOfFirstInsertion) {
  Tags tags({{"b", 1}, {"a", 2}, {"b", 3}});
  tags.set("c", "text");
  tags.set("a", nullptr);
  ASSERT_EQ(tags.size(), 3U);
  std::string order;
  for (const auto& [key, value] : tags) order += key + "=" + python_text(value.view()) + " ";
  EXPECT_EQ(order, "b=3 a=None c=text ");
  EXPECT_TRUE(tags.contains("a"));
  EXPECT_EQ(tags.find("z"), nullptr);
  ASSERT_NE(tags.find("c"), nullptr);
  EXPECT_EQ(*tags.find("c"), TagValue("text"));
}

TEST(TagsTest, OwnTheirText) {
  Tags tags;
  {
    std::string text = "a text that is too long for the small-string room";
    tags.set("key", text);
    text.assign(text.size(), 'x');
  }
  EXPECT_EQ(tags.find("key")->view().text(), "a text that is too long for the small-string room");
}

TEST(TagsTest, EraseRemovesOne) {
  Tags tags({{"a", 1}, {"b", 2}});
  EXPECT_TRUE(tags.erase("a"));
  EXPECT_FALSE(tags.erase("a"));
  EXPECT_EQ(tags, Tags({{"b", 2}}));
  tags.clear();
  EXPECT_TRUE(tags.empty());
}

TEST(TagsTest, EqualityIsOfKindValueAndOrder) {
  EXPECT_EQ(Tags({{"a", 1}, {"b", 2}}), Tags({{"a", 1}, {"b", 2}}));
  EXPECT_NE(Tags({{"a", 1}, {"b", 2}}), Tags({{"b", 2}, {"a", 1}}));
  EXPECT_NE(TagValue(1), TagValue(true));
  EXPECT_NE(TagValue(1), TagValue(1.0));
  EXPECT_NE(TagValue("None"), TagValue(nullptr));
  EXPECT_EQ(TagValue(), TagValue(nullptr));
  EXPECT_EQ(TagValue(TagValue(3)), TagValue(3));
}

// The right column is what CPython 3.11 prints for str() of the left one.
struct Printed {
  TagView value;
  const char* text;
};

class PythonTextTest : public testing::TestWithParam<Printed> {};

TEST_P(PythonTextTest, IsWhatPythonPrints) {
  EXPECT_EQ(python_text(GetParam().value), GetParam().text);
  std::string appended = "before ";
  append_python_text(appended, GetParam().value);
  EXPECT_EQ(appended, std::string("before ") + GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(Plain, PythonTextTest,
                         testing::Values(Printed{nullptr, "None"}, Printed{true, "True"}, Printed{false, "False"},
                                         Printed{0, "0"}, Printed{-17, "-17"},
                                         Printed{std::numeric_limits<std::int64_t>::min(), "-9223372036854775808"},
                                         Printed{std::numeric_limits<std::int64_t>::max(), "9223372036854775807"},
                                         Printed{"", ""}, Printed{"with space", "with space"},
                                         Printed{"\u00e9\u4e2d", "\u00e9\u4e2d"}));

constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Reals, PythonTextTest,
    testing::Values(Printed{0.0, "0.0"}, Printed{-0.0, "-0.0"}, Printed{0.5, "0.5"}, Printed{1.0, "1.0"},
                    Printed{-1.5, "-1.5"}, Printed{0.1, "0.1"}, Printed{0.1F, "0.10000000149011612"},
                    Printed{1.0 / 3, "0.3333333333333333"}, Printed{123456.789, "123456.789"}, Printed{100.0, "100.0"},
                    Printed{1e15, "1000000000000000.0"}, Printed{1e16, "1e+16"},
                    Printed{9999999999999998.0, "9999999999999998.0"}, Printed{1.5e16, "1.5e+16"},
                    Printed{1e20, "1e+20"}, Printed{1e100, "1e+100"}, Printed{-2.5e300, "-2.5e+300"},
                    Printed{0.001, "0.001"}, Printed{0.0001, "0.0001"}, Printed{0.00012345, "0.00012345"},
                    Printed{0.00001, "1e-05"}, Printed{1.5e-7, "1.5e-07"}, Printed{1e-10, "1e-10"},
                    Printed{5e-324, "5e-324"}, Printed{1.7976931348623157e308, "1.7976931348623157e+308"},
                    Printed{18446744073709551616.0, "1.8446744073709552e+19"}, Printed{kInfinity, "inf"},
                    Printed{-kInfinity, "-inf"}, Printed{std::numeric_limits<double>::quiet_NaN(), "nan"},
                    Printed{-std::numeric_limits<double>::quiet_NaN(), "nan"}));

}  // namespace
}  // namespace dbg
