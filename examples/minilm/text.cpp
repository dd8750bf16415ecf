// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Unicode text for the tokenizer, on the tables of utf8proc.
#include "text.h"

#include <utf8proc.h>

#include <array>
#include <vector>

namespace minilm {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

utf8proc_category_t category_of(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

// Tab and the line ends are control characters by their category and spaces by their use.
bool is_text_space(char32_t point) {
  return point == U'\t' || point == U'\n' || point == U'\r';
}

bool is_dropped(char32_t point) {
  if (is_text_space(point)) return false;
  if (point == 0 || point == kReplacement) return true;
  switch (category_of(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

// The ideographs proper. Kana and Hangul are written with spaces or in words, and stay as they are. Extension E starts
// at 0x2B820; transformers' tokenizer takes it from 0x2B920, and so do we.
bool is_ideograph(char32_t point) {
  struct Range {
    char32_t first;
    char32_t last;
  };
  static constexpr std::array<Range, 8> kRanges{{{0x4E00, 0x9FFF},
                                                 {0x3400, 0x4DBF},
                                                 {0x20000, 0x2A6DF},
                                                 {0x2A700, 0x2B73F},
                                                 {0x2B740, 0x2B81F},
                                                 {0x2B920, 0x2CEAF},
                                                 {0xF900, 0xFAFF},
                                                 {0x2F800, 0x2FA1F}}};
  for (const Range& range : kRanges) {
    if (point >= range.first && point <= range.last) return true;
  }
  return false;
}

// Canonical decomposition with its marks in canonical order.
std::u32string decompose(std::u32string_view text) {
  std::string bytes;
  for (const char32_t point : text) append_utf8(point, bytes);
  std::vector<utf8proc_int32_t> points(bytes.size() + 1);
  const auto run = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                              static_cast<utf8proc_ssize_t>(bytes.size()), points.data(),
                              static_cast<utf8proc_ssize_t>(points.size()), UTF8PROC_DECOMPOSE);
  };
  utf8proc_ssize_t count = run();
  if (count > static_cast<utf8proc_ssize_t>(points.size())) {
    points.resize(static_cast<std::size_t>(count));
    count = run();
  }
  std::u32string out;
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    out.push_back(static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  return out;
}

}  // namespace

std::u32string decode_utf8(std::string_view bytes) {
  std::u32string out;
  out.reserve(bytes.size());
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  auto left = static_cast<utf8proc_ssize_t>(bytes.size());
  while (left > 0) {
    utf8proc_int32_t point = 0;
    const utf8proc_ssize_t used = utf8proc_iterate(data, left, &point);
    out.push_back(used > 0 ? static_cast<char32_t>(point) : kReplacement);
    data += used > 0 ? used : 1;
    left -= used > 0 ? used : 1;
  }
  return out;
}

void append_utf8(char32_t point, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

bool is_space(char32_t point) {
  if ((point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85) return true;
  switch (category_of(point)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(char32_t point) {
  if (point < 0x80) {
    return point > 0x20 && point < 0x7F && !(point >= U'0' && point <= U'9') && !(point >= U'A' && point <= U'Z') &&
           !(point >= U'a' && point <= U'z');
  }
  switch (category_of(point)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

std::u32string normalize(std::u32string_view text) {
  std::u32string cleaned;
  cleaned.reserve(text.size());
  for (const char32_t point : text) {
    if (is_dropped(point)) continue;
    if (is_space(point)) {
      cleaned.push_back(U' ');
    } else if (is_ideograph(point)) {
      cleaned.append({U' ', point, U' '});
    } else {
      cleaned.push_back(point);
    }
  }
  std::u32string out;
  out.reserve(cleaned.size());
  for (const char32_t point : decompose(cleaned)) {
    if (category_of(point) == UTF8PROC_CATEGORY_MN) continue;
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
  }
  return out;
}

}  // namespace minilm
