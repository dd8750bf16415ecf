// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The dims language: what a tensor's dimensions mean and how parallel ranks share them; and the arithmetic that takes a
// tensor apart into shards and puts it together again.
//
//   b s[cp:zigzag,sp] (num_heads*head_dim)[tp] 1 # ep:replicated dp:=moe_dp
//
// Left of `#`, one word for each dimension: a name, `1` (a dimension of size 1 that means nothing), or a fused one
// `(a*b)`. In brackets the axes that share it, the first splitting it most coarsely. After an axis's colon, joined by
// `+`: `zigzag` or `natural` (the order in which the axis takes its pieces; natural unless said), `partial` (each rank
// holds the whole dimension, as one summand), `sharded` (which is what an axis does anyway). Right of `#`:
// `axis:replicated` (all ranks of the axis hold the same), `dp:=axis` (the axis that plays data parallelism here).
// The axes are tp, cp, ep, sp, dp, etp, edp, attn_tp, attn_dp, moe_ep, moe_tp, moe_dp and recompute_pseudo; the last is
// replicated without being said. An axis that a rank's parallel state does not know, or of size 1, does nothing.
// Source: SGLang's comparator (debug_utils/comparator/dims_spec), version 0.5.14.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"
#include "dbg/parallel_state.h"
#include "dbg/tensor_info.h"

namespace dbg {

/// One axis that shares a dimension.
struct DimShard {
  std::string axis;
  bool is_zigzag = false;   ///< of 2n pieces, rank r of n holds the r-th from the front and the r-th from the back
  bool is_partial = false;  ///< the ranks' tensors add up

  friend bool operator==(const DimShard& a, const DimShard& b) {
    return a.axis == b.axis && a.is_zigzag == b.is_zigzag && a.is_partial == b.is_partial;
  }
};

/// One dimension of a tensor.
struct Dim {
  std::vector<std::string> names;  ///< one; several when fused; none for `1`
  std::vector<DimShard> shards;    ///< the coarsest split first

  bool is_squeeze() const noexcept { return names.empty(); }
  bool is_fused() const noexcept { return names.size() > 1; }

  friend bool operator==(const Dim& a, const Dim& b) { return a.names == b.names && a.shards == b.shards; }
};

/// A text of the dims language, understood.
/// Threads: immutable, safe to use from any thread.
class DBG_API Dims {
 public:
  /// Throws: ConfigError with the column, the reason and a caret when `text` is not of the language; also when one axis
  /// shares two dimensions, or is replicated as well, which has no meaning.
  static Dims parse(std::string_view text);

  const std::vector<Dim>& dims() const noexcept { return dims_; }
  const std::vector<std::string>& replicated_axes() const noexcept { return replicated_axes_; }
  /// The axis of which only one rank holds data at a time: `dp`, unless the text says another.
  const std::string& dp_axis() const noexcept { return dp_axis_; }

  friend bool operator==(const Dims& a, const Dims& b) {
    return a.dims_ == b.dims_ && a.replicated_axes_ == b.replicated_axes_ && a.dp_axis_ == b.dp_axis_;
  }

 private:
  Dims() = default;

  std::vector<Dim> dims_;
  std::vector<std::string> replicated_axes_;
  std::string dp_axis_ = "dp";
};

/// Indices `[begin, end)` of one dimension.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const IndexRange& a, const IndexRange& b) { return a.begin == b.begin && a.end == b.end; }
};

struct ShardOptions {
  /// For a dimension named `t` that packs several sequences one behind the other and is shared by cp: their lengths in
  /// the whole tensor. Each sequence is then split by itself, and so is what is left over (padding; in natural order).
  /// Without it `t` is split as one, and zigzag is refused on it.
  std::vector<std::int64_t> sequence_lengths = {};
};

/// Which indices of the whole tensor a rank holds: for each dimension its ranges, in the order in which the rank's
/// tensor holds them. Neighbouring ranges are joined.
/// Shape: `full_shape` is that of the whole tensor.
/// Throws: ConfigError when the number of dimensions differs, or a size can't be divided evenly (with the numbers).
DBG_API std::vector<std::vector<IndexRange>> held_ranges(const Dims& dims, const std::vector<std::int64_t>& full_shape,
                                                         const ParallelState& place, const ShardOptions& options = {});

/// What a rank holds of a whole tensor; a view of it where that can be. Of the many ways to split a sum, the one in
/// which the axis's first rank holds it all and the others zeros.
/// Throws: as `held_ranges`.
DBG_API at::Tensor shard_of(const Dims& dims, const at::Tensor& full, const ParallelState& place,
                            const ShardOptions& options = {});

/// What one rank holds.
struct Shard {
  at::Tensor tensor;
  ParallelState place;
  int rank = 0;  ///< how messages call it
};

/// Two replicas that are not equal.
struct ReplicaDifference {
  std::string axis;
  int reference_rank = 0;  ///< of those that most replicas are equal to, the first
  int odd_rank = 0;
  TensorDiff difference;  ///< `a` is the reference
};

struct Unsharded {
  at::Tensor tensor;
  std::vector<ReplicaDifference> replica_differences;
};

/// Puts the whole tensor together from all ranks' shards, in any order.
///
/// Along the dp axis, where dims says nothing else of it, ranks that hold only empty tensors are left out. Replicas are
/// compared; the tensor is then made from those that most are equal to. Summands are added in double (integers: int64)
/// and rounded once to their dtype.
/// Shape: what `shard_of` was given. The result never shares memory with a shard, unless it is one shard as it is.
/// Throws: ConfigError, naming ranks and numbers, when a rank is missing or one too many, when two ranks hold the same
/// place though dims names no axis that tells them apart, when shapes or dtypes differ, or a size can't be right.
DBG_API Unsharded unshard(const Dims& dims, const std::vector<Shard>& shards, const ShardOptions& options = {});

}  // namespace dbg
