// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever an expression and a tag hold: an answer, the same one twice, or a ConfigError. Input: expression, NUL, name.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "dbg/error.h"
#include "dbg/log.h"
#include "dump/filter.h"

namespace {

void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool is_quiet = [] {
    dbg::set_log_handler([](dbg::LogLevel, std::string_view line) { demand(!line.empty(), "an empty line"); });
    return true;
  }();
  static_cast<void>(is_quiet);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  const std::string_view name = end == std::string_view::npos ? "layers.3.attn_out" : input.substr(end + 1);
  try {
    const dbg::Filter filter = dbg::Filter::parse(input.substr(0, end));
    const dbg::Tags tags{{"name", name}, {"layer_id", 3},     {"flag", true},
                         {"scale", 0.5}, {"phase", "décodé"}, {"x", std::numeric_limits<std::int64_t>::min()}};
    demand(filter.matches(tags) == filter.matches(tags), "two answers to one question");
    filter.matches(dbg::Tags());
    // Texts read alike wherever they stand in memory: a copy tells what was read past the end.
    demand(dbg::Filter::parse(std::string(input.substr(0, end))).matches(tags) == filter.matches(tags),
           "one text, two filters");
  } catch (const dbg::ConfigError& error) {
    demand(std::string_view(error.what()).substr(0, 15) == "filter: column ", "an error without its column");
  }
  return 0;
}
