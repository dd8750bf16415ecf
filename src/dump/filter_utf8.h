// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Code points in UTF-8 text, as the filter language counts them. A byte that is not UTF-8 counts as one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dbg::filter {

inline constexpr char32_t kNotUtf8 = 0xffffffff;

/// Reads the code point at `at`, which must be inside `text`, and moves `at` past it.
/// Returns kNotUtf8, and moves by one byte, where there is none: cut short, overlong, a surrogate, above U+10FFFF.
inline char32_t next_code_point(std::string_view text, std::size_t& at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return ++at, first;
  const std::size_t extra = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4 || text.size() - at <= extra) return ++at, kNotUtf8;
  char32_t point = first & (0x3fu >> extra);
  for (std::size_t i = 1; i <= extra; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return ++at, kNotUtf8;
    point = (point << 6) | (byte(at + i) & 0x3fu);
  }
  const char32_t least = extra == 3 ? 0x10000 : extra == 2 ? 0x800 : 0x80;
  if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return ++at, kNotUtf8;
  at += extra + 1;
  return point;
}

/// Number of code points in `text`.
inline std::size_t count_code_points(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) next_code_point(text, at);
  return count;
}

/// Appends `point`, which must be at most U+10FFFF and no surrogate.
inline void append_code_point(std::string& out, char32_t point) {
  if (point < 0x80) {
    out.push_back(static_cast<char>(point));
    return;
  }
  const int extra = point >= 0x10000 ? 3 : point >= 0x800 ? 2 : 1;
  static constexpr unsigned char kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out.push_back(static_cast<char>(kLead[extra] | (point >> (6 * extra))));
  for (int i = extra - 1; i >= 0; --i) out.push_back(static_cast<char>(0x80 | ((point >> (6 * i)) & 0x3f)));
}

inline bool is_surrogate(char32_t point) noexcept {
  return point >= 0xd800 && point <= 0xdfff;
}

}  // namespace dbg::filter
