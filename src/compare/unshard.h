// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What several ranks dumped at one place, as the tensors that can be compared with the other side's.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

#include "compare/side.h"
#include "dbg/compare.h"

namespace dbg::compare {

/// One value of a side, put together from one rank or several.
struct Joined {
  c10::IValue value;
  std::vector<int> ranks;
  std::optional<Dims> dims;
  std::vector<OddReplica> odd_replicas;
  std::string left_out;
};

/// Two values to compare, or why they can't be.
struct JoinedPair {
  Joined baseline;
  Joined target;
  std::string note;   ///< what was not plain about putting them together
  std::string cause;  ///< not empty: they can't be compared
};

/// Joins what the ranks of each side hold of one part. Neither side is empty.
///
/// With dims, the ranks of a side become one tensor. Without, equal ranks are compared with each other; one rank
/// against several makes those replicas. A pipeline stage that holds nothing (None, or no elements) is left out. Never
/// throws for what the records say: that becomes a `cause`.
std::vector<JoinedPair> join_ranks(std::vector<RankValue> baseline, std::vector<RankValue> target);

}  // namespace dbg::compare
