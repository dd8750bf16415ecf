// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A pattern of Python's `re`, read into a tree whose leaves are RE2's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dbg::filter {

/// A part of a pattern. It is a tree, and not text at once, because only the place in the whole says what `$` becomes.
struct Piece {
  enum class Type { fixed, assertion, end_of_text, sequence, choice, repeat };
  Type type = Type::sequence;
  std::size_t at = 0;
  std::string text;           ///< fixed, assertion: for RE2; repeat: the quantifier
  std::string literal;        ///< fixed: the one character it stands for, when it stands for one
  bool at_most_once = false;  ///< repeat
  std::vector<Piece> parts;
};

/// Throws: PatternError.
Piece read_pattern(std::string_view python_pattern);

}  // namespace dbg::filter
