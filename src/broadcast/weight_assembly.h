// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Turns received buckets into weights for a sink: checks each bucket, cuts it as the root did, hands out whole weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "broadcast/bucket_plan.h"
#include "broadcast/transport.h"
#include "dbg/weight_broadcaster.h"
#include "dbg/weight_source.h"

namespace dbg::broadcast {

/// The bytes of a tensor that is contiguous on the CPU. Shares its memory.
at::Tensor bytes_of(const at::Tensor& contiguous);

/// Bytes as a tensor of this dtype and shape. Shares their memory.
at::Tensor tensor_of(const at::Tensor& bytes, const WeightInfo& weight);

/// Threads: one thread at a time, the receiving caller's.
class WeightAssembly {
 public:
  WeightAssembly(const CutRules& rules, Integrity integrity, WeightSink& sink);

  /// The commit record has to be of that version.
  void set_version(std::int64_t version) { version_ = version; }
  /// Called before anything of the sink is touched.
  void on_first_touch(std::function<void()> call) { on_first_touch_ = std::move(call); }

  /// The next bucket. Nothing of it reaches the sink unless its digest is right.
  /// Throws: CommError when digest, plan or order are wrong; ForeignFailure for what the sink threw.
  void take(const ControlMessage& message, const at::Tensor& memory);

  /// The commit record: everything was there. Throws: CommError otherwise.
  void finish(const Header& commit) const;

  std::uint64_t num_weights() const noexcept { return cutter_.num_weights(); }
  std::uint64_t total_bytes() const noexcept { return total_bytes_; }
  std::uint64_t num_buckets() const noexcept { return next_bucket_; }
  /// Whether the sink was given anything, a place to fill included.
  bool has_touched_sink() const noexcept { return has_touched_sink_; }
  /// With per-weight digests: by weight.
  std::map<std::string, std::uint64_t> take_digests() { return std::move(digests_); }
  double sink_seconds() const noexcept { return sink_seconds_; }
  double pack_seconds() const noexcept { return pack_seconds_; }
  /// `weight 3 'layer.1.bias'`, the one that is due.
  std::string current_weight() const;

 private:
  struct Open {
    WeightInfo info;
    at::Tensor storage;  // undefined while it lies in one bucket
    at::Tensor bytes;    // of storage
    std::uint64_t digest = 0;
  };

  void take_piece(const Piece& piece, const at::Tensor& memory);
  at::Tensor storage_for(const WeightInfo& info, bool needs_one);
  void hand_over(const WeightInfo& info, const at::Tensor& tensor, bool is_view);
  [[noreturn]] void refuse(std::string cause) const;

  const CutRules rules_;
  const Integrity integrity_;
  WeightSink& sink_;
  BucketCutter cutter_;
  std::deque<Piece> pieces_;            // cut, and not yet here
  std::map<std::uint64_t, Open> open_;  // by number: begun, or announced
  std::uint64_t next_bucket_ = 0;
  bool has_short_bucket_ = false;  // one that was not full: nothing may follow
  std::uint64_t total_bytes_ = 0;
  std::uint64_t payload_digests_ = 0;
  RollingHash weight_digests_;
  std::map<std::string, std::uint64_t> digests_;
  bool has_touched_sink_ = false;
  std::function<void()> on_first_touch_;
  std::optional<std::int64_t> version_;
  double sink_seconds_ = 0;
  double pack_seconds_ = 0;
};

}  // namespace dbg::broadcast
