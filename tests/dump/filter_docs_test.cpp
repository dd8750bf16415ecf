// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// docs/filter.md says what is so: its examples are run, its error is the one that is thrown.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/error.h"
#include "dump/filter.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

// The lines of the document's fenced blocks of one kind.
std::vector<std::string> lines_of_blocks(const std::string& kind) {
  std::ifstream file(std::string(std::getenv("DBG_TEST_SOURCE_DIR")) + "/docs/filter.md");
  std::vector<std::string> lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = line == "```" + kind;
    } else if (inside) {
      lines.push_back(line);
    }
  }
  return lines;
}

// `rank=0, name="x"`, or `-` for no tags.
Tags tags_of(std::string_view text) {
  Tags tags;
  while (text != "-" && !text.empty()) {
    const std::size_t comma = text.find(", ");
    const std::string_view pair = text.substr(0, comma);
    const std::size_t equals = pair.find('=');
    const std::string_view key = pair.substr(0, equals);
    const std::string_view value = pair.substr(equals + 1);
    if (value.front() == '"') {
      tags.set(key, value.substr(1, value.size() - 2));
    } else {
      tags.set(key, std::atoi(std::string(value).c_str()));
    }
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 2);
  }
  return tags;
}

TEST(FilterDocsTest, ExamplesDoWhatTheySay) {
  const test::LogCapture log;
  int checked = 0;
  for (const std::string& line : lines_of_blocks("python")) {
    const Filter filter = Filter::parse(line);  // the comment is part of the language
    std::string_view claims = std::string_view(line).substr(line.find('#') + 2);
    while (!claims.empty()) {
      const std::size_t end = claims.find("; ");
      const std::string_view claim = claims.substr(0, end);
      ASSERT_TRUE(claim.substr(0, 6) == "keeps " || claim.substr(0, 6) == "drops ") << line;
      EXPECT_EQ(filter.matches(tags_of(claim.substr(6))), claim.front() == 'k') << line << ": " << claim;
      ++checked;
      claims = end == std::string_view::npos ? std::string_view() : claims.substr(end + 2);
    }
  }
  EXPECT_GT(checked, 50);
}

TEST(FilterDocsTest, TheErrorIsTheOneThrown) {
  const std::vector<std::string> lines = lines_of_blocks("text");
  ASSERT_EQ(lines.size(), 3u);
  try {
    Filter::parse(lines[1].substr(2));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), lines[0] + "\n" + lines[1] + "\n" + lines[2]);
  }
}

}  // namespace
}  // namespace dbg
