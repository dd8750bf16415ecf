// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Words, numbers and signs of an expression.
#include "dump/filter_lexer.h"

#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include "base/fork_lock.h"
#include "base/formatted.h"
#include "dump/filter_error.h"
#include "dump/filter_utf8.h"

namespace dbg::filter {
namespace {

constexpr std::string_view kKeywords[] = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield",    "__debug__"};

// What may follow a number without a blank, as Python has it.
constexpr std::string_view kAfterNumber[] = {"and", "else", "for", "if", "in", "is", "not", "or"};

// Python's identifiers, but for its normalisation of look-alikes.
RE2 make_name_pattern() {
  return RE2(R"([\pL\p{Nl}_][\pL\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]*)");
}

struct RefusedSign {
  std::string_view sign;
  std::string_view reason;
};

constexpr RefusedSign kRefusedSigns[] = {
    {"...", "'...' is not part of the language"},
    {"**", "'**' (power) is not part of the language: multiply"},
    {":=", "':=' (assignment) is not part of the language: repeat the expression"},
    {"->", "'->' is not part of the language"},
    {"&&", "'&&' is not Python: write 'and'"},
    {"||", "'||' is not Python: write 'or'"},
    {"<<", "'<<' (shift) is not part of the language: multiply"},
    {">>", "'>>' (shift) is not part of the language: use '//'"},
    {"<>", "'<>' is not Python: write '!='"},
    {"&", "'&' (bits) is not part of the language: use 'and', or '%' and '//' for bits"},
    {"|", "'|' (bits) is not part of the language: use 'or'"},
    {"^", "'^' (bits) is not part of the language: use '!='"},
    {"~", "'~' (bits) is not part of the language: use 'not'"},
    {"@", "'@' (matrix product) is not part of the language"},
    {";", "';' (a second statement) is not part of the language: join by 'and'"},
    {"!", "'!' is not Python: write 'not'"},
    {"=", "'=' (assignment) is not part of the language: write '=='"},
    {"/", "'/' (true division) is not part of the language: use '//', or multiply the other side"},
};

constexpr std::string_view kSigns[] = {"==", "!=", "<=", ">=", "//", "<", ">", "+", "-", "*",
                                       "%",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", "."};

bool is_digit(char c, int base) {
  if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
  return c >= '0' && c < '0' + std::min(base, 10);
}

bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

// A quotation mark, a dash or a blank that an editor put in place of the plain one.
std::string_view plain_form(char32_t point) {
  switch (point) {
    case 0x2018:
    case 0x2019:
    case 0x201c:
    case 0x201d:
      return ": write a plain quotation mark";
    case 0x2013:
    case 0x2014:
    case 0x2212:
      return ": write a plain '-'";
    case 0xa0:
      return ": write a plain blank";
    default:
      return "";
  }
}

}  // namespace

bool is_keyword(std::string_view word) {
  return std::find(std::begin(kKeywords), std::end(kKeywords), word) != std::end(kKeywords);
}

Lexer::Lexer(std::string_view source) : source_(source) {
  for (std::size_t at = 0; at < source_.size();) {
    const std::size_t start = at;
    const char32_t point = next_code_point(source_, at);
    if (point == kNotUtf8) fail(start, "a byte that is not UTF-8");
    if ((point < 0x20 && !(point >= '\t' && point <= '\r')) || point == 0x7f) fail(start, "a control character");
  }
}

void Lexer::fail(std::size_t at, std::string_view reason) const {
  fail_at(source_, at, reason);
}

Token Lexer::next() {
  skip_blanks();
  if (at_end()) {
    Token token;
    token.at = source_.size();
    return token;
  }
  has_begun_ = true;
  if (starts_text()) return read_text();
  const char c = peek();
  if (is_digit(c, 10) || (c == '.' && is_digit(peek(1), 10))) {
    Token token = read_number();
    token.words = source_.substr(token.at, at_ - token.at);
    return token;
  }
  if (starts_name(c)) return read_name();
  return read_sign();
}

void Lexer::skip_blanks() {
  // Outside of brackets a line's end is the end, unless nothing but blanks comes before or behind it.
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t line_end = kNone;
  while (!at_end()) {
    const char c = peek();
    if (c == '#') {
      while (!at_end() && peek() != '\n') ++at_;
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\n' ? 2 : 3;
    } else if (c >= '\t' && c <= '\r') {
      const bool ends_line = (c == '\n' || c == '\r') && open_brackets_ == 0 && has_begun_;
      if (ends_line && line_end == kNone) line_end = at_;
      ++at_;
    } else if (c == ' ') {
      ++at_;
    } else if (line_end == kNone) {
      return;
    } else {
      fail(line_end, "a second line is not part of the language: put the whole in parentheses");
    }
  }
}

Token Lexer::read_sign() {
  Token token;
  token.kind = Token::Kind::sign;
  token.at = at_;
  for (const std::size_t size : {3, 2, 1}) {
    const std::string_view sign = source_.substr(at_, size);
    if (sign.size() < size) continue;
    for (const auto& [refused, reason] : kRefusedSigns) {
      if (sign == refused) fail(at_, reason);
    }
    if (std::find(std::begin(kSigns), std::end(kSigns), sign) == std::end(kSigns)) continue;
    token.words = sign;
    at_ += size;
    if (sign == "(" || sign == "[" || sign == "{") ++open_brackets_;
    if (sign == ")" || sign == "]" || sign == "}") --open_brackets_;
    return token;
  }
  fail(at_, formatted("'{}' is not part of the language", peek()));
}

std::size_t Lexer::name_end(std::size_t from) const {
  const RE2& name = base::made_once<&make_name_pattern>();
  re2::StringPiece rest(source_.data() + from, source_.size() - from);
  re2::StringPiece found;
  if (!name.Match(rest, 0, rest.size(), RE2::ANCHOR_START, &found, 1)) return from;
  return from + found.size();
}

Token Lexer::read_name() {
  Token token;
  token.kind = Token::Kind::name;
  token.at = at_;
  const std::size_t end = name_end(at_);
  if (end == at_) {
    std::size_t after = at_;
    const char32_t point = next_code_point(source_, after);
    fail(at_, formatted("'{}' is not part of the language{}", source_.substr(at_, after - at_), plain_form(point)));
  }
  token.words = source_.substr(at_, end - at_);
  at_ = end;
  return token;
}

// --- Numbers ---

std::size_t Lexer::skip_digits(std::size_t from, int base) const {
  std::size_t at = from;
  while (at < source_.size() && (is_digit(source_[at], base) || (source_[at] == '_' && at > from))) ++at;
  const std::string_view digits = source_.substr(from, at - from);
  if (!digits.empty() && (digits.back() == '_' || digits.find("__") != std::string_view::npos)) {
    fail(from, "a '_' in a number stands between two digits");
  }
  return at;
}

void Lexer::check_number_end(std::size_t start) const {
  if (at_end() || !starts_name(peek())) return;
  if (peek() == 'j' || peek() == 'J') fail(start, "a complex number is not part of the language");
  const std::string_view word = source_.substr(at_, name_end(at_) - at_);
  if (std::find(std::begin(kAfterNumber), std::end(kAfterNumber), word) != std::end(kAfterNumber)) return;
  fail(start, "a number with letters behind it");
}

void Lexer::read_whole(Token& token, int base) {
  const std::size_t end = skip_digits(at_, base);
  std::string digits(source_.substr(at_, end - at_));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  if (digits.empty()) fail(token.at, "a number without digits");
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || stop != digits.data() + digits.size()) {
    fail(token.at, "an integer beyond 64 bits is not part of the language: tags hold 64 bits");
  }
  at_ = end;
  token.integer = value;
  check_number_end(token.at);
}

Token Lexer::read_number() {
  Token token;
  token.kind = Token::Kind::integer;
  token.at = at_;
  const char second = static_cast<char>(peek(1) | 0x20);
  if (peek() == '0' && (second == 'x' || second == 'o' || second == 'b')) {
    at_ += 2;
    if (peek() == '_') ++at_;  // Python: 0x_ff
    read_whole(token, second == 'x' ? 16 : second == 'o' ? 8 : 2);
    return token;
  }
  std::size_t end = skip_digits(at_, 10);
  const bool has_point = end < source_.size() && source_[end] == '.';
  if (has_point) {
    const std::size_t fraction = end + 1;
    if (fraction < source_.size() && source_[fraction] == '_') fail(at_, "a '_' in a number stands between two digits");
    end = skip_digits(fraction, 10);
  }
  bool has_exponent = false;
  if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    std::size_t digits = end + 1;
    if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
    if (digits < source_.size() && is_digit(source_[digits], 10)) {
      has_exponent = true;
      end = skip_digits(digits, 10);
    }
  }
  if (!has_point && !has_exponent) {
    const std::string_view digits = source_.substr(at_, end - at_);
    if (digits.front() == '0' && digits.find_first_not_of("0_") != std::string_view::npos) {
      fail(at_, "a whole number does not begin with 0 (octal: 0o17)");
    }
    read_whole(token, 10);
    return token;
  }
  std::string digits(source_.substr(at_, end - at_));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  token.kind = Token::Kind::real;
  // Out of range for a double is infinity or zero; a long double tells which.
  long double value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
  if (error == std::errc::result_out_of_range) {
    const auto wide = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_tiny = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
    if (wide.ec == std::errc()) {
      token.real = static_cast<double>(value);
    } else {
      token.real = is_tiny ? 0 : std::numeric_limits<double>::infinity();
    }
  }
  at_ = end;
  check_number_end(token.at);
  return token;
}

}  // namespace dbg::filter
