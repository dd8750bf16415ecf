// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
#include "dump/record_name.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <regex>

namespace dbg {
namespace {

std::vector<RecordNamePair> base_pairs(std::string_view name) {
  return {{"step", 0}, {"rank", 0}, {"dump_index", 1}, {"name", name}, {"recompute_status", "disabled"}};
}

std::string text_of(const Tags& tags, std::string_view key) {
  const TagValue* value = tags.find(key);
  return value != nullptr ? std::string(value->view().text()) : "(absent)";
}

// The header describes the format; its example must be what the code makes.
TEST(RecordNameTest, MakesTheExampleOfItsOwnHeader) {
  std::ifstream header(std::string(std::getenv("DBG_TEST_SOURCE_DIR")) + "/src/dump/record_name.h");
  std::string line;
  std::string example;
  while (std::getline(header, line)) {
    if (line.starts_with("//   step=")) example = line.substr(5);
  }
  auto pairs = base_pairs("attn_out");
  pairs.emplace_back("layer_id", 3);
  EXPECT_EQ(format_record_name(pairs), example);
}

TEST(RecordNameTest, PrintsValuesAsPythonDoes) {
  auto pairs = base_pairs("x");
  pairs.emplace_back("a", nullptr);
  pairs.emplace_back("b", true);
  pairs.emplace_back("c", 0.5);
  pairs.emplace_back("d", -7);
  pairs.emplace_back("e", "text with space");
  EXPECT_EQ(format_record_name(pairs),
            "step=0___rank=0___dump_index=1___name=x___recompute_status=disabled___a=None___b=True___c=0.5___d=-7___"
            "e=text with space.pt");
}

TEST(RecordNameTest, EscapesWhatBreaksAPathOrTheGrammar) {
  auto pairs = base_pairs(std::string_view("a/b\0c___d\n", 10));
  pairs.emplace_back("k=1", "v=1");
  pairs.emplace_back("_lead", "tail_");
  const std::string name = format_record_name(pairs);
  EXPECT_EQ(name,
            "step=0___rank=0___dump_index=1___name=a%2Fb%00c__%5Fd%0A___recompute_status=disabled___k%3D1=v=1___"
            "%5Flead=tail%5F.pt");
  const auto parsed = parse_record_name(name);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(text_of(*parsed, "name"), std::string("a/b\0c___d\n", 10));
  EXPECT_EQ(text_of(*parsed, "k=1"), "v=1");
  EXPECT_EQ(text_of(*parsed, "_lead"), "tail_");
}

TEST(RecordNameTest, HidesNoFileByALeadingDot) {
  EXPECT_EQ(format_record_name({{".x", 1}}), "%2Ex=1.pt");
}

TEST(RecordNameTest, KeepsALonelyPercentReadable) {
  const std::string name = format_record_name(base_pairs("50% of 100%25"));
  EXPECT_NE(name.find("name=50% of 100%2525"), std::string::npos) << name;
  EXPECT_EQ(text_of(*parse_record_name(name), "name"), "50% of 100%25");
}

TEST(RecordNameTest, CutsLongValuesAndKeepsEqualOnesEqual) {
  const std::string longer(400, 'x');
  const std::string first = format_record_name(base_pairs(longer));
  EXPECT_LE(first.size(), kLongestRecordName);
  EXPECT_TRUE(std::regex_match(text_of(*parse_record_name(first), "name"), std::regex("x+~[0-9a-f]{16}"))) << first;
  auto later = base_pairs(longer);
  later[2].second = 2;
  EXPECT_EQ(text_of(*parse_record_name(format_record_name(later)), "name"), text_of(*parse_record_name(first), "name"));
  EXPECT_NE(format_record_name(base_pairs(longer + "y")), first) << "the hash covers what was cut off";
}

// What is escaped is bounded; the hash covers all the same.
TEST(RecordNameTest, VeryLongTextsDifferByTheirLastByte) {
  std::string value(5000000, 'v');
  const std::string name = format_record_name(base_pairs(value));
  EXPECT_LE(name.size(), kLongestRecordName);
  EXPECT_TRUE(parse_record_name(name));
  EXPECT_EQ(format_record_name(base_pairs(value)), name);
  value.back() = 'w';
  EXPECT_NE(format_record_name(base_pairs(value)), name);

  const auto named_by = [](const std::string& key, const std::string& last) {
    std::vector<RecordNamePair> pairs = base_pairs("x");
    for (int i = 0; i < 1000; ++i) pairs.emplace_back("tag", "value");
    pairs.emplace_back(key, last);
    return format_record_name(pairs);
  };
  const std::string key(5000, 'k');
  EXPECT_LE(named_by(key, "1").size(), kLongestRecordName);
  EXPECT_NE(named_by(key, "1"), named_by(key, "2")) << "the last of very many pairs counts";
  EXPECT_NE(named_by(key, "1"), named_by(key.substr(1) + "l", "1"));
  EXPECT_NE(named_by(key, std::string(5000, 'a')), named_by(key, std::string(4999, 'a') + "b"));
}

TEST(RecordNameTest, CutsBetweenCharactersAndEscapes) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "\xE6\xBC\xA2/";
  for (std::size_t shift = 0; shift < 12; ++shift) {
    const std::string name = format_record_name(base_pairs(std::string(shift, 'a') + text));
    ASSERT_LE(name.size(), kLongestRecordName);
    const std::string value = text_of(*parse_record_name(name), "name");
    const std::string kept = value.substr(shift, value.rfind('~') - shift);
    const std::size_t rest = kept.size() % 4;
    EXPECT_TRUE(rest == 0 || rest == 3) << "cut inside a character or an escape: " << name;
  }
}

TEST(RecordNameTest, SurvivesTagsThatNothingCanShorten) {
  auto pairs = base_pairs("x");
  std::vector<std::string> keys;
  for (int i = 0; i < 60; ++i) keys.push_back("a_rather_long_key_" + std::to_string(i));
  for (const std::string& key : keys) pairs.emplace_back(key, 1);
  const std::string name = format_record_name(pairs);
  EXPECT_LE(name.size(), kLongestRecordName);
  const auto parsed = parse_record_name(name);
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->contains("more"));
  EXPECT_EQ(text_of(*parsed, "name"), "x");
}

TEST(RecordNameTest, ParsesOnlyRecordNames) {
  EXPECT_FALSE(parse_record_name("notes.txt"));
  EXPECT_FALSE(parse_record_name("step=0___rank=0___name=x.pt")) << "no dump_index";
  EXPECT_FALSE(parse_record_name("step=a___rank=0___dump_index=1___name=x.pt"));
  EXPECT_FALSE(parse_record_name("step=0___rank=0___dump_index=1.pt"));
  EXPECT_FALSE(parse_record_name("step=0___rank=0___dump_index=1___junk___name=x.pt"));
  EXPECT_FALSE(parse_record_name(""));
  EXPECT_TRUE(parse_record_name("step=0___rank=0___dump_index=1___name=.pt"));
}

// Any text in any place comes back, and every name is a valid path component.
TEST(RecordNameTest, RoundTripsAnyText) {
  std::mt19937 random(20260801);
  const std::string alphabet = std::string("_%=./~a0F") + '\n' + '\0' + "\xC3\xA9";
  const auto any_text = [&](std::size_t longest) {
    std::string text(random() % (longest + 1), '\0');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const std::string name = any_text(20);
    const std::string key = "k" + any_text(8);
    const std::string value = any_text(12);
    auto pairs = base_pairs(name);
    pairs.emplace_back(key, value);
    const std::string file = format_record_name(pairs);
    ASSERT_LE(file.size(), kLongestRecordName);
    ASSERT_EQ(file.find_first_of(std::string("/\0", 2)), std::string::npos);
    const auto parsed = parse_record_name(file);
    ASSERT_TRUE(parsed) << file;
    ASSERT_EQ(text_of(*parsed, "name"), name) << file;
    ASSERT_EQ(text_of(*parsed, key), value) << file;
  }
}

}  // namespace
}  // namespace dbg
