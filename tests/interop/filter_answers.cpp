// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Answers filter questions, one JSON object a line, for filter_interop_test.py.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "dbg/error.h"
#include "dbg/log.h"
#include "dbg/tags.h"
#include "dump/filter.h"

namespace {

// `tags` is a list of [key, kind, value as text]: JSON has no 64-bit integers, and no floats to the bit.
dbg::Tags tags_of(const nlohmann::json& list) {
  dbg::Tags tags;
  for (const auto& tag : list) {
    const auto key = tag.at(0).get<std::string>();
    const auto kind = tag.at(1).get<std::string>();
    const auto value = tag.at(2).get<std::string>();
    if (kind == "none") {
      tags.set(key, nullptr);
    } else if (kind == "bool") {
      tags.set(key, value == "True");
    } else if (kind == "int") {
      tags.set(key, static_cast<std::int64_t>(std::stoll(value)));
    } else if (kind == "float") {
      tags.set(key, std::stod(value));
    } else {
      tags.set(key, value);
    }
  }
  return tags;
}

}  // namespace

int main() {
  dbg::set_log_handler([](dbg::LogLevel, std::string_view) {});  // thousands of mismatches are expected
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    const nlohmann::json question = nlohmann::json::parse(line);
    try {
      const dbg::Filter filter = dbg::Filter::parse(question.at("filter").get<std::string>());
      answer["keeps"] = filter.matches(tags_of(question.at("tags")));
      answer["mismatches"] = filter.mismatches();
    } catch (const dbg::ConfigError& error) {
      answer["refused"] = error.what();
    }
    std::cout << answer.dump() << '\n';
  }
  return 0;
}
