// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where two folders of records part: pairs them and finds the first that differs and the first that jumps.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "dbg/tensor_info.h"

namespace minilm {

/// One record of the baseline with its partner in the target.
struct RecordPair {
  std::string label;  ///< `step=0 ffn_act layer_id=3`
  std::string baseline_path;
  std::string target_path;
  /// How the two tensors differ.
  dbg::TensorDiff difference;
  /// Length of the difference over the length of the baseline, about; infinite where the two can't be compared.
  double error = 0;
  /// `error` over the largest error of the pairs before it (or over the dtype's rounding, if that is larger).
  double growth = 0;
};

/// What `compare_runs` found, in the baseline's order of dumping.
struct RunComparison {
  std::size_t num_baseline = 0;
  std::size_t num_target = 0;
  std::vector<RecordPair> pairs;
  std::vector<std::string> only_in_baseline;  ///< labels
  std::vector<std::string> only_in_target;
  std::optional<std::size_t> first_other_bits;  ///< index into `pairs`
  std::optional<std::size_t> first_jump;        ///< index into `pairs`
};

/// Pairs the records of two folders by step, rank, name and tags, the n-th equal one with the n-th, and compares them.
///
/// The first pair with other bits is often only rounding: another kernel, another number of threads. A jump is an error
/// that is more than five times as large as any before it. Rounding grows evenly (by at most 1.7 from one pair of this
/// model to the next, measured), a mistake does not: the smallest here, eps 1e-5 for 1e-12 in one layer norm, grows
/// what rounding left before it by 11 or more.
/// Reads two records at a time.
/// Throws: dbg::Error when a folder or a record can't be read.
RunComparison compare_runs(const std::string& baseline_folder, const std::string& target_folder);

}  // namespace minilm
