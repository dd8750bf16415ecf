// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One side of a pair as its records tell it: values, who dumped them, and what is said of their dims.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/rules.h"
#include "dbg/dims.h"
#include "dbg/parallel_state.h"
#include "dump/record_pairing.h"

namespace dbg::compare {

/// A record's file and what its name tells.
struct RecordFile {
  std::string path;
  RecordDescriptor descriptor;
};

/// One rank's value.
struct RankValue {
  int rank = 0;
  c10::IValue value;
  ParallelState place;
  std::optional<Dims> dims;
  std::string dims_text;
  /// Of a packed dimension `t` that is shared in zigzag order, where the run tells them.
  std::vector<std::int64_t> sequence_lengths;
  /// What the reader could not hold of the value, the first of it; empty when all is there.
  std::string left_out;
};

/// A tensor of a value that may be a container: `part` is where it stood, empty for the value itself.
struct PartOfRank {
  std::string part;
  RankValue value;
};

/// Where a rank stands, from a record's meta: all `*_parallel_info` dicts together (the first that knows an axis
/// counts) and the pseudo axis of recomputation. Throws: ConfigError when an axis's rank and size make no sense.
ParallelState place_of(const c10::IValue& meta);

/// Reads a record. Tensors of more than `windowed_above_bytes` are read when they are walked.
/// Throws: IoError; ConfigError when its dims or its parallel info make no sense.
RankValue load(const RecordFile& file, Side side, std::string_view name, const Rules& rules,
               std::uint64_t windowed_above_bytes);

/// The leaves of the value, in order: lists and tuples by position, dicts by key in the order they were written.
std::vector<PartOfRank> parts_of(const RankValue& value);

}  // namespace dbg::compare
