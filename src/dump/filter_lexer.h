// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Cuts an expression into words, numbers, texts and signs, as Python's own tokenizer would.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dump/filter_value.h"

namespace dbg::filter {

struct Token {
  enum class Kind { end, name, sign, integer, real, text };
  Kind kind = Kind::end;
  std::size_t at = 0;      ///< byte of the source
  std::string_view words;  ///< as it stands in the source
  Integer integer = 0;
  double real = 0;
  std::string text;             ///< decoded
  std::size_t text_at = 0;      ///< first byte inside the quotes
  bool text_as_written = true;  ///< no escape was decoded: byte i of `text` is byte `text_at + i` of the source
};

/// Reads one token after the other. What Python has and the language has not is refused by name.
/// Threads: one thread at a time.
class Lexer {
 public:
  /// `source` must outlive the lexer and its tokens.
  /// Throws: ConfigError, as each `next()` does.
  explicit Lexer(std::string_view source);

  Token next();

 private:
  bool at_end() const { return at_ >= source_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  [[noreturn]] void fail(std::size_t at, std::string_view reason) const;

  void skip_blanks();
  Token read_sign();
  Token read_name();
  std::size_t name_end(std::size_t from) const;

  Token read_number();
  void read_whole(Token& token, int base);
  std::size_t skip_digits(std::size_t from, int base) const;
  void check_number_end(std::size_t start) const;

  bool starts_text() const;
  Token read_text();
  void read_escape(Token& token);
  char32_t read_hexadecimal(std::size_t start, int digits);

  std::string_view source_;
  std::size_t at_ = 0;
  int open_brackets_ = 0;
  bool has_begun_ = false;  // a token was read
};

/// Whether `word` is one of Python's keywords; those can't be tags.
bool is_keyword(std::string_view word);

}  // namespace dbg::filter
