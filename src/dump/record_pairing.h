// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which records of two runs belong together. Works on descriptions alone: no files, no tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/tags.h"

namespace re2 {
class RE2;
}

namespace dbg {

/// What a record's file name tells.
struct RecordDescriptor {
  std::string name;
  std::int64_t step = 0;
  int rank = 0;
  std::int64_t dump_index = 0;
  Tags tags;  ///< all others, recompute_status and tags of parallel ranks included
};

/// What the pairs of a record's name tell, as `parse_record_name` reads them.
RecordDescriptor describe_record(const Tags& pairs);

/// What the name of a record's file tells; `path` may have folders before it.
/// Throws: ConfigError when it is no record's name.
RecordDescriptor describe_record_file(std::string_view path);

/// How names of the target's engine become those of the baseline's: `regex => replacement`, RE2's syntax. The first
/// match in the name is replaced; `\1` in the replacement is the first group.
class NameRule {
 public:
  /// Throws: ConfigError when there is no `=>`, the regex is none, or the replacement asks for a group that is not
  /// there.
  static NameRule parse(std::string_view text);

  /// Rewrites `name` and returns true when the regex is found in it.
  bool apply(std::string& name) const;

 private:
  std::shared_ptr<const re2::RE2> pattern_;
  std::string replacement_;
};

struct PairingOptions {
  /// Tags that don't count.
  std::vector<std::string> ignored_tags = {};
  /// Tags that tell the members of one bundle apart, as the rank does; so they don't count either. With
  /// `recompute_status` added, a first pass and its repetition come into one bundle.
  std::vector<std::string> bundle_tags = {"pp_rank", "tp_rank", "cp_rank", "ep_rank", "etp_rank"};
  /// The baseline's step of the target's step s is s + step_offset.
  std::int64_t step_offset = 0;
  /// The first rule that is found in a target's name makes it the baseline's.
  std::vector<NameRule> name_rules = {};
};

/// Positions in the list of one side: what several ranks dumped at the same place, by rank and then dump_index.
using RecordBundle = std::vector<std::size_t>;

struct RecordPair {
  RecordBundle baseline;
  RecordBundle target;
};

/// A bundle that has no partner.
struct UnpairedBundle {
  RecordBundle records;
  /// Why: the other side has no such name, or not in that step, or not with these tags, or not that many.
  std::string reason;
  /// The name on the other side that is nearest by edits (the same name, when it is there); empty when there is none.
  std::string nearest_name;
};

struct Pairing {
  std::vector<RecordPair> pairs;  ///< in the order in which the baseline dumped them
  std::vector<UnpairedBundle> baseline_only;
  std::vector<UnpairedBundle> target_only;
};

/// Pairs records of equal name, step and tags; of several equal ones the n-th with the n-th, by dump_index.
///
/// A tag counts when some record of each side has it, and is compared by what it prints as; a record without it then
/// pairs only with one without it. Each record is in exactly one bundle, and each bundle in exactly one list.
Pairing pair_records(const std::vector<RecordDescriptor>& baseline, const std::vector<RecordDescriptor>& target,
                     const PairingOptions& options = {});

}  // namespace dbg
