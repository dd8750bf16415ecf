// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Sets of characters as a Python pattern means them (`\d`, `[^a-f\s]`, one letter without its case), written for RE2.
#pragma once

#include <string>

namespace dbg::filter {

struct PatternFlags {
  bool ignore_case = false;
  bool multiline = false;
  bool dot_all = false;
  bool ascii = false;
};

/// Collects what stands in one class and writes it.
class CharacterClass {
 public:
  explicit CharacterClass(PatternFlags flags) : flags_(flags) {}

  void add_range(char32_t first, char32_t last);
  /// `category` is one of d, D, s, S, w, W. Python's are those of Unicode, RE2's own only those of ASCII.
  void add_category(char category);

  /// Whether `write(true)` can be had: RE2 has no way to take `\W` out of a class.
  bool can_be_negated() const { return !has_not_word_ || items_.empty(); }
  std::string write(bool negated) const;

 private:
  PatternFlags flags_;
  std::string items_;  // the inside of a class in RE2's syntax
  bool has_not_word_ = false;
};

/// `point` as RE2 reads it outside of a class.
std::string written_literal(char32_t point, PatternFlags flags);

}  // namespace dbg::filter
