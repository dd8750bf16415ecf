// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads a pattern as Python's `re` does; says no by name to what linear time can't have.
#include "dump/filter_pattern_tree.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/formatted.h"
#include "dump/filter_pattern.h"
#include "dump/filter_pattern_class.h"
#include "dump/filter_utf8.h"

namespace dbg::filter {
namespace {

constexpr int kDeepestGroups = 100;
constexpr int kMostRepeats = 1000;  // RE2's own bound

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  Piece read_all() {
    Piece piece = read_choice(PatternFlags{}, /*outermost=*/true);
    if (!at_end()) fail(at_, "')' without its '('");
    return piece;
  }

 private:
  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(char c) const { return !at_end() && pattern_[at_] == c; }
  bool take(char c) { return next_is(c) ? ++at_, true : false; }

  [[noreturn]] static void fail(std::size_t at, const std::string& reason) { throw PatternError(at, reason); }

  char32_t take_code_point() {
    const std::size_t start = at_;
    const char32_t point = next_code_point(pattern_, at_);
    if (point == kNotUtf8) fail(start, "a byte that is not UTF-8");
    return point;
  }

  Piece read_choice(PatternFlags flags, bool outermost) {
    if (++depth_ > kDeepestGroups) fail(at_, formatted("groups nested deeper than {}", kDeepestGroups));
    Piece choice;
    choice.type = Piece::Type::choice;
    choice.at = at_;
    // Global flags may only stand at the very beginning, and then hold for all that follows.
    if (outermost) {
      while (read_global_flags(flags)) {
      }
    }
    do {
      choice.parts.push_back(read_sequence(flags));
    } while (take('|'));
    --depth_;
    if (choice.parts.size() > 1) return choice;
    Piece only = std::move(choice.parts.front());
    return only;
  }

  Piece read_sequence(PatternFlags flags) {
    Piece sequence;
    sequence.at = at_;
    while (!at_end() && !next_is('|') && !next_is(')')) {
      if (read_quantifier(sequence)) continue;
      if (std::optional<Piece> piece = read_item(flags)) sequence.parts.push_back(std::move(*piece));
    }
    return sequence;
  }

  // --- Quantifiers ---

  std::optional<int> read_count() {
    const std::size_t start = at_;
    int count = 0;
    while (!at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      count = std::min(count * 10 + (pattern_[at_++] - '0'), kMostRepeats + 1);
    }
    if (at_ == start) return std::nullopt;
    if (count > kMostRepeats) fail(start, formatted("more than {} repeats", kMostRepeats));
    return count;
  }

  // Applies the quantifier at the current place to the last part. Returns false when there is none.
  bool read_quantifier(Piece& sequence) {
    const std::size_t start = at_;
    int least = 0;
    std::optional<int> most;
    if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (take('{')) {
      const std::size_t inside = at_;
      const std::optional<int> first = read_count();
      least = first.value_or(0);
      most = take(',') ? read_count() : first;
      if (next_is('}') && at_ > inside) {
        ++at_;
      } else {  // a brace that is no quantifier stands for itself
        at_ = start;
        return false;
      }
      if (most && *most < least) fail(start, "a repeat whose least count is above its greatest");
    } else if (!take('*')) {
      return false;
    }
    if (sequence.parts.empty()) fail(start, "nothing to repeat");
    Piece& last = sequence.parts.back();
    if (last.type == Piece::Type::assertion || last.type == Piece::Type::end_of_text) fail(start, "nothing to repeat");
    if (last.type == Piece::Type::repeat) fail(start, "a repeat of a repeat: put the inner one in (?:...)");
    if (next_is('+')) fail(start, "a possessive repeat is not available: leave out its last '+'");
    take('?');  // lazy or greedy: whether there is a match is the same

    Piece repeat;
    repeat.type = Piece::Type::repeat;
    repeat.at = last.at;
    repeat.text = most ? formatted("{{{},{}}}", least, *most) : formatted("{{{},}}", least);
    repeat.at_most_once = most && *most <= 1;
    repeat.parts.push_back(std::move(last));
    last = std::move(repeat);
    return true;
  }

  // --- One item ---

  static Piece fixed(std::size_t at, std::string text) {
    Piece piece;
    piece.type = Piece::Type::fixed;
    piece.at = at;
    piece.text = std::move(text);
    return piece;
  }

  static Piece assertion(std::size_t at, std::string text) {
    Piece piece = fixed(at, std::move(text));
    piece.type = Piece::Type::assertion;
    return piece;
  }

  static Piece character(std::size_t at, char32_t point, PatternFlags flags) {
    if (is_surrogate(point)) fail(at, "a surrogate is no character");
    Piece piece = fixed(at, written_literal(point, flags));
    if (!flags.ignore_case) append_code_point(piece.literal, point);
    return piece;
  }

  static Piece category(std::size_t at, char name, PatternFlags flags) {
    CharacterClass one(flags);
    one.add_category(name);
    return fixed(at, one.write(/*negated=*/false));
  }

  // Nothing is returned for a comment.
  std::optional<Piece> read_item(PatternFlags flags) {
    const std::size_t start = at_;
    const char32_t point = take_code_point();
    switch (point) {
      case '.':
        return fixed(start, flags.dot_all ? "(?s:.)" : "[^\\n]");
      case '^':
        return assertion(start, flags.multiline ? "(?m:^)" : "\\A");
      case '$': {
        Piece piece = assertion(start, "(?m:$)");
        if (!flags.multiline) piece.type = Piece::Type::end_of_text;
        return piece;
      }
      case '(':
        return read_group(start, flags);
      case '[':
        return read_class(start, flags);
      case '\\':
        return read_escape(start, flags);
      default:
        return character(start, point, flags);
    }
  }

  static bool is_octal(char c) { return c >= '0' && c <= '7'; }

  char32_t read_octal(std::size_t start, std::size_t most_digits) {
    char32_t value = 0;
    for (; most_digits > 0 && !at_end() && is_octal(pattern_[at_]); --most_digits) {
      value = value * 8 + static_cast<char32_t>(pattern_[at_++] - '0');
    }
    if (value > 0377) fail(start, "an octal escape above \\377");
    return value;
  }

  char32_t read_hexadecimal(std::size_t start, int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = at_end() ? '\0' : pattern_[at_];
      const char lower = static_cast<char>(c | 0x20);
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (lower < 'a' || lower > 'f')) fail(start, formatted("an escape that needs {} digits", digits));
      value = value * 16 + static_cast<char32_t>(is_digit ? c - '0' : lower - 'a' + 10);
    }
    if (value > 0x10ffff) fail(start, "a code point above U+10FFFF");
    return value;
  }

  // The escapes that stand for one character, inside and outside of a class. `at_` is past the letter.
  std::optional<char32_t> read_character_escape(std::size_t start, char32_t letter) {
    switch (letter) {
      case 'a':
        return U'\a';
      case 'f':
        return U'\f';
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'v':
        return U'\v';
      case 'x':
        return read_hexadecimal(start, 2);
      case 'u':
        return read_hexadecimal(start, 4);
      case 'U':
        return read_hexadecimal(start, 8);
      case 'N':
        fail(start, "\\N{...} is not available: write the character or \\uXXXX");
      default:
        break;
    }
    const bool is_word =
        (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (is_word) return std::nullopt;
    return letter;
  }

  Piece read_escape(std::size_t start, PatternFlags flags) {
    if (at_end()) fail(start, "a '\\' with nothing behind it");
    const char32_t letter = take_code_point();
    switch (letter) {
      case 'A':
        return assertion(start, "\\A");
      case 'Z':
        return assertion(start, "\\z");
      case 'b':
        if (flags.ascii) return assertion(start, "\\b");
        fail(start, "\\b is available for words of ASCII only: begin the pattern with (?a)");
      case 'B':
        fail(start, "\\B is not available: say what stands there, as \\w does");
      case 'd':
      case 'D':
      case 's':
      case 'S':
      case 'w':
      case 'W':
        return category(start, static_cast<char>(letter), flags);
      case '0':
        return character(start, read_octal(start, 2), flags);
      default:
        break;
    }
    if (letter >= '1' && letter <= '9') {
      // Three octal digits are a character, everything else names a group.
      const std::string_view digits = pattern_.substr(start + 1, 3);
      if (digits.size() == 3 && std::all_of(digits.begin(), digits.end(), is_octal)) {
        at_ = start + 1;
        return character(start, read_octal(start, 3), flags);
      }
      fail(start, "a backreference is not available: write out what may be repeated");
    }
    if (const auto point = read_character_escape(start, letter)) return character(start, *point, flags);
    fail(start, formatted("\\{} is no escape of a pattern", static_cast<char>(letter)));
  }

  // --- Classes ---

  struct ClassItem {
    std::optional<char32_t> point;
    char category = 0;
  };

  ClassItem read_class_item() {
    const std::size_t start = at_;
    const char32_t point = take_code_point();
    if (point != '\\') return {point};
    if (at_end()) fail(start, "a '\\' with nothing behind it");
    const char32_t letter = take_code_point();
    if (letter == 'b') return {U'\b'};
    if (letter < 0x80 && std::string_view("dDsSwW").find(static_cast<char>(letter)) != std::string_view::npos) {
      return {std::nullopt, static_cast<char>(letter)};
    }
    if (letter >= '0' && letter <= '7') {
      at_ = start + 1;
      return {read_octal(start, 3)};
    }
    const auto escaped = read_character_escape(start, letter);
    if (!escaped) fail(start, formatted("\\{} is no escape of a class", static_cast<char>(letter)));
    if (is_surrogate(*escaped)) fail(start, "a surrogate is no character");
    return {*escaped};
  }

  Piece read_class(std::size_t start, PatternFlags flags) {
    const bool negated = take('^');
    CharacterClass items(flags);
    const std::size_t first_item = at_;
    while (true) {
      if (at_end()) fail(start, "a '[' without its ']'");
      if (at_ != first_item && take(']')) break;
      const std::size_t item_at = at_;
      const ClassItem low = read_class_item();
      const bool is_range = next_is('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (is_range) {
        ++at_;
        const ClassItem high = read_class_item();
        if (!low.point || !high.point || *high.point < *low.point) fail(item_at, "a range of characters without sense");
        items.add_range(*low.point, *high.point);
      } else if (low.point) {
        items.add_range(*low.point, *low.point);
      } else {
        items.add_category(low.category);
      }
    }
    if (negated && !items.can_be_negated()) {
      fail(start, "\\W beside other things in a class with '^' is not available: list what is wanted instead");
    }
    return fixed(start, items.write(negated));
  }

  // --- Groups ---

  static bool set_flag(PatternFlags& flags, char letter, bool on) {
    switch (letter) {
      case 'i':
        return flags.ignore_case = on, true;
      case 'm':
        return flags.multiline = on, true;
      case 's':
        return flags.dot_all = on, true;
      case 'a':
        return flags.ascii = true, on;
      case 'u':
        return flags.ascii = false, on;
      default:
        return false;
    }
  }

  void set_flag_or_fail(PatternFlags& flags, bool on) {
    const char letter = at_end() ? '\0' : pattern_[at_];
    if (letter == 'x') fail(at_, "the flag x (verbose) is not available: leave out the blanks");
    if (!set_flag(flags, letter, on)) fail(at_, "not a flag that can stand here: a, i, m, s and u can");
    ++at_;
  }

  // `(?i)` and its like; leaves the place alone when there is none.
  bool read_global_flags(PatternFlags& flags) {
    if (pattern_.substr(at_, 2) != "(?") return false;
    const std::size_t close = pattern_.find_first_not_of("aimsuxL", at_ + 2);
    if (close == at_ + 2 || close == std::string_view::npos || pattern_[close] != ')') return false;
    at_ += 2;
    while (at_ < close) set_flag_or_fail(flags, /*on=*/true);
    ++at_;
    return true;
  }

  std::optional<Piece> read_group(std::size_t start, PatternFlags flags) {
    if (take('?')) {
      if (take('#')) {
        const std::size_t close = pattern_.find(')', at_);
        if (close == std::string_view::npos) fail(start, "a comment without its ')'");
        at_ = close + 1;
        return std::nullopt;
      }
      read_group_kind(start, flags);
    }
    Piece inside = read_choice(flags, /*outermost=*/false);
    if (!take(')')) fail(start, "a '(' without its ')'");
    // Kept apart from the sequence around it, so that a quantifier takes all of it.
    Piece group;
    group.at = start;
    group.parts.push_back(std::move(inside));
    return group;
  }

  // What stands between `(?` and the inside of the group.
  void read_group_kind(std::size_t start, PatternFlags& flags) {
    const auto starts_with = [&](std::string_view head) { return pattern_.substr(at_, head.size()) == head; };
    if (starts_with("=") || starts_with("!")) {
      fail(start, "a lookahead is not available: use two search() joined by 'and' or 'and not'");
    }
    if (starts_with("<=") || starts_with("<!")) {
      fail(start, "a lookbehind is not available: use two search() joined by 'and' or 'and not'");
    }
    if (starts_with("(")) fail(start, "a conditional group is not available: write both cases, joined by '|'");
    if (starts_with(">")) fail(start, "an atomic group is not available: use (?:...)");
    if (take('P')) {
      if (starts_with("=")) fail(start, "a backreference is not available: write out what may be repeated");
      if (!take('<')) fail(start, "an unknown kind of group");
      read_group_name(start);
      return;
    }
    PatternFlags inner = flags;
    while (!at_end() && !next_is(':') && !next_is('-')) {
      if (next_is(')')) fail(start, "global flags must stand at the beginning of the pattern");
      set_flag_or_fail(inner, /*on=*/true);
    }
    if (take('-')) {
      if (next_is(':')) fail(at_, "a '-' without a flag");
      while (!at_end() && !next_is(':')) set_flag_or_fail(inner, /*on=*/false);
    }
    if (!take(':')) fail(start, "an unknown kind of group");
    flags = inner;
  }

  void read_group_name(std::size_t start) {
    const std::size_t close = pattern_.find('>', at_);
    if (close == std::string_view::npos || close == at_) fail(start, "a group without its name");
    const std::string_view name = pattern_.substr(at_, close - at_);
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
    };
    const bool is_name = is_letter(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
                           return is_letter(c) || (c >= '0' && c <= '9');
                         });
    if (!is_name) fail(start, "a group's name must be a word");
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) fail(start, "two groups of one name");
    names_.push_back(name);
    at_ = close + 1;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string_view> names_;
};

}  // namespace

Piece read_pattern(std::string_view python_pattern) {
  return PatternReader(python_pattern).read_all();
}

}  // namespace dbg::filter
