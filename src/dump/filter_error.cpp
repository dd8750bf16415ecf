// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The text of an error in an expression.
#include "dump/filter_error.h"

#include <algorithm>
#include <string>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/filter_utf8.h"

namespace dbg::filter {
namespace {

constexpr std::size_t kShownBefore = 60;  // code points left of the caret
constexpr std::size_t kShownWidth = 100;

std::size_t byte_of(std::string_view source, std::size_t code_points) {
  std::size_t at = 0;
  for (; code_points > 0 && at < source.size(); --code_points) next_code_point(source, at);
  return at;
}

}  // namespace

std::size_t column_of(std::string_view source, std::size_t byte) {
  return count_code_points(source.substr(0, std::min(byte, source.size()))) + 1;
}

std::string_view clipped(std::string_view source, std::size_t most) {
  return source.substr(0, byte_of(source, most));
}

void fail_at(std::string_view source, std::size_t byte, std::string_view reason) {
  const std::size_t column = column_of(source, byte);
  const std::size_t total = count_code_points(source);
  // Columns from 0 here: [first, last) is shown.
  const std::size_t first = total > kShownWidth && column > kShownBefore ? column - kShownBefore : 0;
  const std::size_t last = std::min(total, first + kShownWidth);
  const std::size_t from = byte_of(source, first);
  std::string shown;
  for (const char c : clipped(source.substr(from), last - first)) {
    shown.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c);
  }
  const std::string_view before = first > 0 ? "..." : "";
  const std::string_view after = last < total ? "..." : "";
  const std::string indent(2 + before.size() + (column - 1 - first), ' ');
  throw ConfigError(formatted("filter: column {}: {}\n  {}{}{}\n{}^", column, reason, before, shown, after, indent));
}

}  // namespace dbg::filter
