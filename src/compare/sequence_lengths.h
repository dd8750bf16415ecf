// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How long the sequences are that a dimension `t` packs: from what the run dumped beside the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/side.h"

namespace dbg::compare {

/// Whether a tensor of these dims can only be put together with the lengths of its sequences: `t[cp:zigzag]`, and more
/// than one cp rank.
bool needs_sequence_lengths(const Dims& dims, const ParallelState& place);

/// Whether records of this name tell lengths.
bool tells_sequence_lengths(std::string_view name);

/// The lengths of one run, read from its records when they are asked for.
///
/// A record named `cu_seqlens_q` (where each sequence begins, and where the last one ends: Megatron's) or else
/// `seq_lens` (SGLang's) of the same step tells them; the rank's own where it has one.
/// Threads: safe to use from any thread.
/// Source: SGLang's comparator (aligner/token_aligner), version 0.5.14, which reads the same records.
class SequenceLengths {
 public:
  SequenceLengths() = default;
  /// `records` are those whose names say that they tell lengths.
  explicit SequenceLengths(std::vector<RecordFile> records) : records_(std::move(records)) {}

  /// The lengths for a rank's tensor of a step; empty where no record tells them.
  /// Throws: IoError when a record can't be read; ConfigError when one holds no lengths, or two tell different ones.
  std::vector<std::int64_t> of(std::int64_t step, int rank) const;

 private:
  using Lengths = std::vector<std::int64_t>;

  std::vector<const RecordFile*> tellers_of(std::int64_t step, int rank) const;

  std::vector<RecordFile> records_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::int64_t, int>, Lengths> known_;
};

}  // namespace dbg::compare
