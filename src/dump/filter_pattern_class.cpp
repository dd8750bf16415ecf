// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The tables behind Python's character categories.
#include "dump/filter_pattern_class.h"

#include <array>
#include <utility>

#include "base/formatted.h"

namespace dbg::filter {
namespace {

using Range = std::pair<char32_t, char32_t>;
constexpr char32_t kLast = 0x10ffff;

// str.isspace(): whitespace by Unicode's bidirectional classes and category Zs; a list that is closed since
// Unicode 6.3.
constexpr std::array<Range, 10> kSpaces = {{{0x9, 0xd},
                                            {0x1c, 0x20},
                                            {0x85, 0x85},
                                            {0xa0, 0xa0},
                                            {0x1680, 0x1680},
                                            {0x2000, 0x200a},
                                            {0x2028, 0x2029},
                                            {0x202f, 0x202f},
                                            {0x205f, 0x205f},
                                            {0x3000, 0x3000}}};
constexpr std::array<Range, 2> kAsciiSpaces = {{{0x9, 0xd}, {0x20, 0x20}}};
constexpr std::array<Range, 1> kAsciiDigits = {{{'0', '9'}}};
constexpr std::array<Range, 4> kAsciiWord = {{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}};

std::string range_text(char32_t first, char32_t last) {
  const auto point = [](char32_t value) { return formatted("\\x{{{:x}}}", static_cast<std::uint32_t>(value)); };
  return first == last ? point(first) : point(first) + "-" + point(last);
}

template <std::size_t N>
std::string ranges_text(const std::array<Range, N>& ranges, bool complement) {
  std::string text;
  char32_t from = 0;
  for (const auto& [first, last] : ranges) {
    if (!complement) {
      text += range_text(first, last);
    } else if (first > from) {
      text += range_text(from, first - 1);
    }
    from = last + 1;
  }
  if (complement) text += range_text(from, kLast);
  return text;
}

bool covers(char32_t first, char32_t last, char32_t point) {
  return first <= point && point <= last;
}

}  // namespace

void CharacterClass::add_range(char32_t first, char32_t last) {
  items_ += range_text(first, last);
  if (!flags_.ignore_case) return;
  if (flags_.ascii) {
    // RE2 would fold by Unicode (k and the Kelvin sign); Python then folds ASCII letters only.
    for (char32_t upper = 'A'; upper <= 'Z'; ++upper) {
      const char32_t lower = upper - 'A' + 'a';
      if (covers(first, last, upper)) items_ += range_text(lower, lower);
      if (covers(first, last, lower)) items_ += range_text(upper, upper);
    }
    return;
  }
  // Python takes the dotted and the dotless i for one letter; simple case folding, RE2's way, does not.
  constexpr char32_t kForms[] = {'i', 'I', 0x130, 0x131};
  for (const char32_t form : kForms) {
    if (!covers(first, last, form)) continue;
    for (const char32_t other : kForms) items_ += range_text(other, other);
    return;
  }
}

void CharacterClass::add_category(char category) {
  switch (category) {
    case 'd':
      items_ += flags_.ascii ? ranges_text(kAsciiDigits, false) : "\\p{Nd}";
      return;
    case 'D':
      items_ += flags_.ascii ? ranges_text(kAsciiDigits, true) : "\\P{Nd}";
      return;
    case 's':
    case 'S':
      items_ += flags_.ascii ? ranges_text(kAsciiSpaces, category == 'S') : ranges_text(kSpaces, category == 'S');
      return;
    case 'w':
      items_ += flags_.ascii ? ranges_text(kAsciiWord, false) : "\\p{L}\\p{N}_";
      return;
    default:
      if (flags_.ascii) {
        items_ += ranges_text(kAsciiWord, true);
      } else {
        has_not_word_ = true;
      }
      return;
  }
}

std::string CharacterClass::write(bool negated) const {
  const std::string head = flags_.ignore_case && !flags_.ascii ? "(?i:[" : "(?:[";
  if (!has_not_word_) return head + (negated ? "^" : "") + items_ + "])";
  if (negated) return "[\\p{L}\\p{N}_]";
  const std::string not_word = "[^\\p{L}\\p{N}_]";
  return items_.empty() ? not_word : "(?:" + head + items_ + "])|" + not_word + ")";
}

std::string written_literal(char32_t point, PatternFlags flags) {
  if (flags.ignore_case) {
    CharacterClass one(flags);
    one.add_range(point, point);
    return one.write(/*negated=*/false);
  }
  return range_text(point, point);
}

}  // namespace dbg::filter
