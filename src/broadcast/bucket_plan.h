// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How weights are cut into buckets: one pure function, for root, relays and consumers alike.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fnv_hash.h"
#include "dbg/weight_source.h"

namespace dbg::broadcast {

/// A rolling hash, 64 bits (FNV-1a over bytes): equal input in equal order gives equal values on all machines.
class RollingHash {
 public:
  void add(const void* data, std::size_t size) noexcept;
  void add(std::uint64_t value) noexcept;
  void add(std::string_view text) noexcept;
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = base::kFnvStart;
};

/// Adds name, dtype and shape.
void add_to(RollingHash& hash, const WeightInfo& weight) noexcept;

/// `layer.0.weight (float32 [2, 3])`.
std::string text_of(const WeightInfo& weight);

/// The weight's bytes. Throws: ConfigError naming it when its shape or dtype has none, or too many for 63 bits.
std::uint64_t size_bytes_of(const WeightInfo& weight);

/// How weights are cut. Equal on all ranks.
struct CutRules {
  std::uint64_t bucket_bytes = 0;
  /// Where a weight may begin within a bucket. More than the bucket means: at its start only.
  std::uint64_t alignment = 256;
};

/// More pieces than any model has: a weight that would be cut into more is refused, before they are made.
inline constexpr std::uint64_t kMostPieces = std::uint64_t{1} << 20;

/// The smallest bucket that is accepted.
inline constexpr std::uint64_t kLeastBucketBytes = 64;

/// A contiguous range of one weight's bytes, within one bucket.
struct Piece {
  std::uint64_t bucket = 0;
  std::uint64_t weight = 0;  ///< its number in the stream
  std::uint64_t offset_in_weight = 0;
  std::uint64_t size = 0;  ///< 0 for a weight without elements, which has this one piece
  std::uint64_t offset_in_bucket = 0;
  bool begins_weight = false;
  bool ends_weight = false;
  /// This piece fills its bucket.
  bool ends_bucket = false;
  /// With `ends_bucket`: the hash over all weights and cuts up to here.
  std::uint64_t plan_hash = 0;
};

/// Cuts a stream of weights, one after the other.
///
/// A weight begins at a multiple of the alignment, in the current bucket when that has room left there, and goes on
/// into as many buckets as it needs; what follows is packed behind its tail. A bucket is full when nothing can begin in
/// it any more; its length is where its last piece ends.
/// Threads: one thread at a time.
class BucketCutter {
 public:
  /// Throws: ConfigError when the rules make no sense.
  explicit BucketCutter(const CutRules& rules);

  /// The pieces of the next weight, in order.
  /// Throws: ConfigError for a name that was there before, for more than kMostPieces, or as `size_bytes_of`; nothing
  /// has changed then.
  std::vector<Piece> add(const WeightInfo& weight);

  /// The bucket that pieces go to now, and its length so far.
  std::uint64_t bucket() const noexcept { return bucket_; }
  std::uint64_t length() const noexcept { return length_; }
  /// Whether the current bucket holds anything: a piece, be it empty.
  bool has_open_bucket() const noexcept { return has_pieces_; }
  std::uint64_t num_weights() const noexcept { return weights_; }
  /// Over all weights and cuts so far.
  std::uint64_t plan_hash() const noexcept { return hash_.value(); }

  /// Ends the stream's last bucket, which need not be full.
  void end_bucket() noexcept;

 private:
  CutRules rules_;
  RollingHash hash_;
  std::unordered_map<std::string, std::uint64_t> numbers_;  // name -> number in the stream
  std::uint64_t weights_ = 0;
  std::uint64_t bucket_ = 0;
  std::uint64_t length_ = 0;
  bool has_pieces_ = false;
};

/// One bucket of a whole plan.
struct PlannedBucket {
  std::uint64_t length = 0;
  std::uint64_t plan_hash = 0;
  std::vector<Piece> pieces;
};

/// A whole plan.
struct BucketPlan {
  std::vector<PlannedBucket> buckets;
  std::uint64_t total_bytes = 0;  ///< of the weights, without what alignment adds
  std::uint64_t plan_hash = 0;
};

/// Plans for weights that are known beforehand: what BucketCutter gives, weight by weight.
BucketPlan plan_buckets(const std::vector<WeightInfo>& weights, const CutRules& rules);

/// A hash over names, dtypes and shapes, without the cut.
std::uint64_t manifest_hash(const std::vector<WeightInfo>& weights);

/// The first place where two lists of weights part, in words with both sides; nullopt when one begins with the other.
/// `first` is the number of the lists' first weight in the stream.
std::optional<std::string> first_difference(const std::vector<WeightInfo>& a, std::string_view a_is,
                                            const std::vector<WeightInfo>& b, std::string_view b_is,
                                            std::uint64_t first = 0);

}  // namespace dbg::broadcast
