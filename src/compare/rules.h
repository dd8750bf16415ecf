// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a user knows better than the records: tolerances and dims by name, name maps and tags that don't count.
//
// A rules file has one rule a line; `#` begins a comment where it stands first. A regex (RE2's syntax) is looked for
// anywhere in the name, and ends at the first `: ` (write `[:] ` for one in it).
//
//   rule attn_.*: rel <= 1e-3 or max_abs <= 1e-5     a tolerance
//   dims attn_out: b s h[tp]                         dims, where the record's meta has none
//   dims! attn_out: b s h[tp]                        dims, whatever the meta says
//   baseline-dims attn_out: b s h                    of one side; target-dims likewise, both also with `!`
//   map layers\.(\d+) => blocks.\1                   the target's names as the baseline's
//   ignore-tag phase                                 a tag that need not be equal
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/tolerance.h"
#include "dbg/dims.h"

namespace re2 {
class RE2;
}

namespace dbg::compare {

enum class Side { baseline, target };

inline const char* to_text(Side side) noexcept {
  return side == Side::baseline ? "baseline" : "target";
}

/// Threads: immutable once read; safe to use from any thread.
class Rules {
 public:
  /// Adds `regex: tolerance`.
  /// Throws: ConfigError when it is none.
  void add_tolerance(std::string_view text);

  /// Adds the lines of a rules file; `path` is for messages.
  /// Throws: ConfigError with path and line for one that is no rule.
  void add_file(const std::string& path);

  /// The first tolerance whose regex is found in `name`; nullptr where there is none.
  const Tolerance* tolerance_of(std::string_view name) const;

  /// The dims to use for a record whose meta says `in_meta` (empty: nothing); nullopt when nobody says anything.
  /// Throws: ConfigError when the meta's are not of the language.
  std::optional<Dims> dims_of(Side side, std::string_view name, std::string_view in_meta) const;

  const std::vector<std::string>& name_maps() const noexcept { return name_maps_; }
  const std::vector<std::string>& ignored_tags() const noexcept { return ignored_tags_; }

 private:
  using Pattern = std::shared_ptr<const re2::RE2>;
  struct ToleranceRule {
    Pattern pattern;
    Tolerance tolerance;
  };
  struct DimsRule {
    Pattern pattern;
    Dims dims;
    std::optional<Side> side;  // both when there is none
    bool is_forced = false;
  };

  void add_line(std::string_view line);

  std::vector<ToleranceRule> tolerances_;
  std::vector<DimsRule> dims_;
  std::vector<std::string> name_maps_;
  std::vector<std::string> ignored_tags_;
};

}  // namespace dbg::compare
