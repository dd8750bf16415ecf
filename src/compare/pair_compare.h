// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One bundle of the baseline against its partner: from files to verdicts.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "compare/rules.h"
#include "compare/sequence_lengths.h"
#include "compare/side.h"
#include "dbg/compare.h"

namespace dbg::compare {

/// What is the same for all pairs.
struct PairContext {
  const Rules& rules;
  double noise_factor = 3;
  std::size_t max_pictures = 0;
  std::uint64_t windowed_above_bytes = std::uint64_t{64} << 20;
  /// How many pictures were drawn; by all threads.
  std::atomic<std::size_t>* pictures = nullptr;
  /// What each run tells of its packed sequences.
  const SequenceLengths* baseline_lengths = nullptr;
  const SequenceLengths* target_lengths = nullptr;
  const SequenceLengths* noise_lengths = nullptr;
};

/// The records of one pair. `noise` may be empty.
struct PairJob {
  std::vector<const RecordFile*> baseline;
  std::vector<const RecordFile*> target;
  std::vector<const RecordFile*> noise;
};

struct PairOutcome {
  std::vector<PairReport> reports;
  std::vector<UnreadableReport> unreadable;
};

/// Reads, joins, aligns, measures and judges. What is wrong with the records becomes part of the outcome.
/// Never throws, but for memory.
PairOutcome compare_pair(const PairJob& job, const PairContext& context);

/// `layer_id=3 phase=prefill`: the tags that tell a record from others, without those that stand for a rank.
std::string tags_text(const Tags& tags);

}  // namespace dbg::compare
