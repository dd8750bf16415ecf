// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The filter language: which dumps a run keeps. Knows nothing of files, ranks or the environment.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "dbg/tags.h"

namespace dbg {

namespace filter {
struct Program;
}

/// Where a filter's names get their values from, without anything being built for it.
class TagLookup {
 public:
  /// The value under `key`; None when there is none. Borrowed until the evaluation ends.
  virtual TagView find(std::string_view key) const noexcept = 0;

 protected:
  ~TagLookup() = default;
};

/// A predicate over tags, compiled once from text such as `layer_id in (0, 1) and name.startswith("attn")`.
///
/// Grammar and meaning follow Python's where Python gives an answer; an unknown name is None.
/// Source: docs/filter.md; the Python twin evaluates the same text with Python itself.
/// Threads: safe to call from any thread.
class Filter {
 public:
  /// Matches everything.
  Filter() noexcept = default;

  /// Compiles `text`. A blank text matches everything.
  /// Throws: ConfigError with the column, a caret line and the reason when `text` is not of the language.
  static Filter parse(std::string_view text);

  /// Whether a dump with these tags is kept.
  /// Never throws: what Python would refuse to do (`None < 3`) makes its comparison false, is counted in
  /// `mismatches()`, and the first one is logged. Does not allocate unless the expression builds text or tuples out of
  /// tags.
  bool matches(const TagLookup& tags) const noexcept;
  bool matches(const Tags& tags) const noexcept;

  /// How many operations so far met values that they have no meaning for. Copies of a filter count together.
  std::uint64_t mismatches() const noexcept;

  /// Whether every dump is kept, whatever its tags: nothing to look up.
  bool matches_everything() const noexcept { return program_ == nullptr; }

 private:
  std::shared_ptr<const filter::Program> program_;
};

}  // namespace dbg
