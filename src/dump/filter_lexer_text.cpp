// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Texts in an expression: quotes, prefixes and escapes as Python's.
#include <cctype>

#include "base/formatted.h"
#include "dump/filter_lexer.h"
#include "dump/filter_utf8.h"

namespace dbg::filter {
namespace {

constexpr std::string_view kPrefixLetters = "rRuUbBfFtT";

}  // namespace

// A quote, or a prefix of at most two letters right before one.
bool Lexer::starts_text() const {
  std::size_t letters = 0;
  while (letters < 2 && peek(letters) != '\0' && kPrefixLetters.find(peek(letters)) != std::string_view::npos) {
    ++letters;
  }
  return peek(letters) == '\'' || peek(letters) == '"';
}

Token Lexer::read_text() {
  Token token;
  token.kind = Token::Kind::text;
  token.at = at_;
  bool is_raw = false;
  for (; peek() != '\'' && peek() != '"'; ++at_) {
    const char letter = static_cast<char>(peek() | 0x20);
    if (letter == 'b') fail(token.at, "a bytes literal is not part of the language: tags hold text, leave out the b");
    if (letter == 'f' || letter == 't') {
      fail(token.at, "an f-string is not part of the language: join texts by '+'");
    }
    if (letter == 'u' && (is_raw || (peek(1) != '\'' && peek(1) != '"'))) fail(token.at, "an unknown prefix of a text");
    if (letter == 'r' && is_raw) fail(token.at, "an unknown prefix of a text");
    is_raw = letter == 'r';
  }
  const char quote = peek();
  const bool is_tripled = peek(1) == quote && peek(2) == quote;
  at_ += is_tripled ? 3 : 1;
  token.text_at = at_;
  while (true) {
    if (at_end()) fail(token.at, "a text without its closing quote");
    const char c = peek();
    if (c == quote && (!is_tripled || (peek(1) == quote && peek(2) == quote))) break;
    if (!is_tripled && (c == '\n' || c == '\r')) fail(token.at, "a text without its closing quote on the same line");
    if (c != '\\') {
      token.text.push_back(c);
      ++at_;
    } else if (is_raw) {
      // The backslash stays, and keeps a quote behind it from closing the text.
      token.text.push_back(c);
      ++at_;
      if (at_end()) fail(token.at, "a text without its closing quote");
      token.text.push_back(peek());
      ++at_;
    } else {
      token.text_as_written = false;
      read_escape(token);
    }
  }
  at_ += is_tripled ? 3 : 1;
  token.words = source_.substr(token.at, at_ - token.at);
  return token;
}

char32_t Lexer::read_hexadecimal(std::size_t start, int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char c = peek();
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) {
      fail(start, formatted("an escape that needs {} hexadecimal digits", digits));
    }
    value = value * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (value > 0x10ffff) fail(start, "a code point above U+10FFFF");
  if (is_surrogate(value)) fail(start, "a surrogate is no character: write the code point itself, as \\U0001f600");
  return value;
}

// Reads the escape at `at_` into the token's text.
void Lexer::read_escape(Token& token) {
  const std::size_t start = at_;
  const char letter = peek(1);
  at_ += 2;
  switch (letter) {
    case '\n':
      return;
    case '\r':
      if (peek() == '\n') ++at_;
      return;
    case '\\':
    case '\'':
    case '"':
      token.text.push_back(letter);
      return;
    case 'a':
      token.text.push_back('\a');
      return;
    case 'b':
      token.text.push_back('\b');
      return;
    case 'f':
      token.text.push_back('\f');
      return;
    case 'n':
      token.text.push_back('\n');
      return;
    case 'r':
      token.text.push_back('\r');
      return;
    case 't':
      token.text.push_back('\t');
      return;
    case 'v':
      token.text.push_back('\v');
      return;
    case 'x':
      append_code_point(token.text, read_hexadecimal(start, 2));
      return;
    case 'u':
      append_code_point(token.text, read_hexadecimal(start, 4));
      return;
    case 'U':
      append_code_point(token.text, read_hexadecimal(start, 8));
      return;
    case 'N':
      fail(start, "\\N{...} is not part of the language: write the character or \\uXXXX");
    default:
      break;
  }
  if (letter >= '0' && letter <= '7') {
    char32_t value = 0;
    at_ = start + 1;
    for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i, ++at_) {
      value = value * 8 + static_cast<char32_t>(peek() - '0');
    }
    append_code_point(token.text, value);
    return;
  }
  // Python keeps the backslash of an escape that it does not know. What it stands before is read as usual.
  token.text.push_back('\\');
  at_ = start + 1;
}

}  // namespace dbg::filter
