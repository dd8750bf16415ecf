// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which ranks form which parallel groups: plain arithmetic, without groups, store or environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"
#include "dbg/parallel_state.h"

namespace dbg {

/// How many ways each kind of parallelism splits the model or its input. 1: not at all.
///
/// Two conventions, by which names are set:
/// - vLLM's: the world is dp x pp x tp, tp fastest. `ep` groups are the dp x tp ranks of one pipeline stage.
/// - SGLang's: the world is pp x tp, and the tp ranks are divided a second and third time: for attention into
///   attn_dp x attn_cp x attn_tp, for experts into moe_dp x moe_ep x moe_tp, the last fastest.
struct ParallelSizes {
  int tp = 1;       ///< tensor
  int pp = 1;       ///< pipeline
  int dp = 1;       ///< data, of whole replicas (vLLM)
  int attn_dp = 1;  ///< data, within tp's ranks (SGLang)
  int cp = 1;       ///< context of attention, within tp's ranks (SGLang's attn_cp)
  int ep = 1;       ///< experts, within tp's ranks (SGLang's moe_ep); for vLLM's see `experts_over_dp`
  int moe_dp = 1;   ///< data of experts, within tp's ranks (SGLang)
  /// vLLM's expert parallelism: one `ep` group of the dp x tp ranks of each stage. `ep` is then left at 1.
  bool experts_over_dp = false;
};

/// All groups of one name. Each rank of the world is in one of them.
struct ParallelGroup {
  std::string name;                           ///< `tp`, `attn_cp`, ...
  std::vector<std::vector<int>> group_ranks;  ///< in the order of the layout; within a group that of the ranks

  friend bool operator==(const ParallelGroup& a, const ParallelGroup& b) {
    return a.name == b.name && a.group_ranks == b.group_ranks;
  }
};

/// The groups of a world.
///
/// Names: always `tp`, `pp`; `dp` where dp > 1; `ep` with `experts_over_dp`; `attn_tp`, `attn_cp`, `attn_dp`, `moe_tp`,
/// `moe_ep`, `moe_dp` where one of SGLang's sizes (attn_dp, cp, ep, moe_dp) is above 1.
class DBG_API ModelParallelLayout {
 public:
  /// Throws: ConfigError with the numbers when a size is below 1, the product is not `world_size`, tp does not divide,
  /// or the two conventions are mixed.
  static ModelParallelLayout make(int world_size, const ParallelSizes& sizes);

  int world_size() const noexcept { return world_size_; }
  const std::vector<ParallelGroup>& groups() const noexcept { return groups_; }
  /// nullptr when there is none of that name.
  const ParallelGroup* find(std::string_view name) const noexcept;

  /// Where `rank` stands in each group, in the order of `groups()`.
  /// Throws: ConfigError unless 0 <= rank < world_size().
  ParallelState state_of(int rank) const;

 private:
  int world_size_ = 1;
  std::vector<ParallelGroup> groups_;
};

/// `ModelParallelLayout::make`, under the name it has in documents.
DBG_API ModelParallelLayout make_layout(int world_size, const ParallelSizes& sizes);

}  // namespace dbg
