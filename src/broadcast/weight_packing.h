// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// An actor's way from its source to buckets: what each weight is, where it is cut, and on the root its bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "broadcast/bucket_exchange.h"
#include "broadcast/bucket_plan.h"
#include "dbg/weight_broadcaster.h"

namespace dbg::broadcast {

/// What a source handed out. Throws: ConfigError naming a weight that can't be sent: undefined, sparse, quantised,
/// without data.
WeightInfo info_of(const Weight& weight);

/// The tensor's elements side by side on the CPU; itself where they are so already.
at::Tensor dense_on_cpu(const at::Tensor& tensor);

/// Where full buckets go.
struct PackingOutput {
  std::function<at::Tensor()> acquire;  ///< memory for a bucket; waits
  std::function<void(BucketItem)> push;
};

/// Cuts and packs. On relays it only cuts: their bytes come from the root.
/// Threads: one thread at a time, the sending caller's.
class WeightPacking {
 public:
  /// `is_stable`: weights are sent from where they lie when they fill a bucket.
  WeightPacking(const CutRules& rules, Integrity integrity, bool has_bytes, bool is_stable, PackingOutput output);

  /// The next weight: its full buckets are pushed before this returns.
  void add(const WeightInfo& info, const at::Tensor& tensor);
  /// The last bucket and the commit record.
  void finish();

  /// Put into every header.
  void set_sync(std::uint64_t generation, std::int64_t version);

  std::uint64_t num_weights() const noexcept { return cutter_.num_weights(); }
  std::uint64_t total_bytes() const noexcept { return total_bytes_; }
  std::map<std::string, std::uint64_t> take_digests() { return std::move(digests_); }
  double pack_seconds() const noexcept { return pack_seconds_; }
  double wait_seconds() const noexcept { return wait_seconds_; }

 private:
  void add_piece(const Piece& piece, const at::Tensor& bytes, bool may_lend);
  void push_bucket(std::uint64_t plan_hash);

  const CutRules rules_;
  const Integrity integrity_;
  const bool has_bytes_;
  const bool is_stable_;
  const PackingOutput output_;
  BucketCutter cutter_;
  std::uint64_t generation_ = 0;
  std::int64_t version_ = 0;
  at::Tensor slot_;  // of the bucket that is being filled
  at::Tensor lent_;  // the weight's own memory that is this whole bucket
  std::uint64_t bucket_ = 0;
  std::uint64_t length_ = 0;
  std::uint64_t first_weight_ = 0;
  std::vector<WeightInfo> infos_;  // of the weights that begin in it
  std::uint64_t total_bytes_ = 0;
  std::uint64_t payload_digests_ = 0;
  std::uint64_t weight_digest_ = 0;
  RollingHash weight_digests_;
  std::map<std::string, std::uint64_t> digests_;
  double pack_seconds_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace dbg::broadcast
