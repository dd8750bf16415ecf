// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The patterns of `search` and `match`: Python's `re` syntax and meaning, run in linear time.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace dbg::filter {

/// A pattern is wrong, or uses what can't be had in linear time; `at` is the byte of the pattern.
struct PatternError : std::runtime_error {
  PatternError(std::size_t place, const std::string& reason) : std::runtime_error(reason), at(place) {}
  std::size_t at;
};

/// One compiled pattern. Where RE2 reads a construct differently from Python (`$`, `\d`, `\w`, `\Z`, `{,n}`, classes),
/// it is translated; what RE2 has no counterpart for is refused by name.
/// Threads: safe to call from any thread.
class Pattern {
 public:
  /// Throws: PatternError.
  explicit Pattern(std::string_view python_pattern);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  /// Whether `re.search(pattern, text)` finds anything.
  bool search(std::string_view text) const;
  /// Whether `re.match(pattern, text)` does: only at the beginning of `text`.
  bool match(std::string_view text) const;

 private:
  bool run(std::string_view text, bool from_start) const;

  // A pattern that is a choice of plain texts needs no automaton: `attn`, `^layers`, `attn|mlp`.
  std::vector<std::string> literals_;
  bool literals_at_start_ = false;
  std::unique_ptr<re2::RE2> automaton_;  // null when `literals_` say it all
};

/// What a Python pattern becomes for RE2.
struct TranslatedPattern {
  std::string text;
  std::vector<std::string> literals;  ///< not empty: the pattern matches exactly where one of these stands ...
  bool literals_at_start = false;     ///< ... at the beginning of the text
};

/// Throws: PatternError.
TranslatedPattern translate_pattern(std::string_view python_pattern);

}  // namespace dbg::filter
