// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Cuts, hashes, compares.
#include "broadcast/bucket_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/dtype.h"
#include "base/fnv_hash.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

// Offsets are compared and added as signed ones elsewhere (tensors have signed sizes).
constexpr auto kMostBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t step) noexcept {
  return (value + step - 1) / step * step;
}

}  // namespace

void RollingHash::add(const void* data, std::size_t size) noexcept {
  value_ = base::fnv_hash({static_cast<const char*>(data), size}, value_);
}

void RollingHash::add(std::uint64_t value) noexcept {
  for (int shift = 0; shift < 64; shift += 8) {
    const auto byte = static_cast<unsigned char>(value >> shift);
    add(&byte, 1);
  }
}

void RollingHash::add(std::string_view text) noexcept {
  add(static_cast<std::uint64_t>(text.size()));
  add(text.data(), text.size());
}

void add_to(RollingHash& hash, const WeightInfo& weight) noexcept {
  hash.add(std::string_view(weight.name));
  hash.add(static_cast<std::uint64_t>(weight.dtype));
  hash.add(static_cast<std::uint64_t>(weight.shape.size()));
  for (const std::int64_t size : weight.shape) hash.add(static_cast<std::uint64_t>(size));
}

std::string text_of(const WeightInfo& weight) {
  return formatted("'{}' ({} [{}])", weight.name, base::dtype_name(weight.dtype), fmt::join(weight.shape, ", "));
}

std::uint64_t size_bytes_of(const WeightInfo& weight) {
  if (weight.dtype == at::ScalarType::Undefined || weight.dtype == at::ScalarType::NumOptions ||
      c10::isQIntType(weight.dtype)) {
    throw ConfigError(formatted("the weight '{}' has no plain dtype; send its parts.", weight.name));
  }
  std::uint64_t bytes = c10::elementSize(weight.dtype);
  bool is_empty = false;
  for (const std::int64_t size : weight.shape) {
    if (size < 0) throw ConfigError(formatted("the weight {} has a negative size.", text_of(weight)));
    is_empty = is_empty || size == 0;
  }
  if (is_empty) return 0;
  for (const std::int64_t size : weight.shape) {
    if (static_cast<std::uint64_t>(size) > kMostBytes / bytes) {
      throw ConfigError(formatted("the weight {} has more bytes than 63 bits count.", text_of(weight)));
    }
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

BucketCutter::BucketCutter(const CutRules& rules) : rules_(rules) {
  if (rules.bucket_bytes < kLeastBucketBytes || rules.bucket_bytes > kMostBytes / 4) {
    throw ConfigError(formatted("bucket_bytes is {}; it is at least {} and small enough to allocate.",
                                rules.bucket_bytes, kLeastBucketBytes));
  }
  if (rules.alignment == 0) throw ConfigError("the alignment of weights in buckets is 0; it is at least 1.");
  rules_.alignment = std::min(rules.alignment, rules.bucket_bytes);
  hash_.add(rules_.bucket_bytes);
  hash_.add(rules_.alignment);
}

std::vector<Piece> BucketCutter::add(const WeightInfo& weight) {
  const std::uint64_t total = size_bytes_of(weight);
  if (total / rules_.bucket_bytes >= kMostPieces) {
    throw ConfigError(
        formatted("the weight {} has {} bytes, which buckets of {} bytes would cut into more than {} "
                  "pieces; raise bucket_bytes.",
                  text_of(weight), total, rules_.bucket_bytes, kMostPieces));
  }
  const auto [known, is_new] = numbers_.emplace(weight.name, weights_);
  if (!is_new) {
    throw ConfigError(formatted("the weight '{}' is there twice, as number {} and as number {}; names are unique.",
                                weight.name, known->second, weights_));
  }
  add_to(hash_, weight);

  std::vector<Piece> pieces;
  std::uint64_t done = 0;
  do {
    Piece piece;
    piece.bucket = bucket_;
    piece.weight = weights_;
    piece.offset_in_weight = done;
    piece.offset_in_bucket = total == 0 ? length_ : rounded_up(length_, rules_.alignment);
    piece.size = std::min(total - done, rules_.bucket_bytes - piece.offset_in_bucket);
    piece.begins_weight = done == 0;
    done += piece.size;
    piece.ends_weight = done == total;
    length_ = piece.offset_in_bucket + piece.size;
    has_pieces_ = true;
    hash_.add(piece.bucket);
    hash_.add(piece.offset_in_weight);
    hash_.add(piece.size);
    hash_.add(piece.offset_in_bucket);
    // Nothing could begin here any more.
    piece.ends_bucket = rounded_up(length_, rules_.alignment) >= rules_.bucket_bytes;
    if (piece.ends_bucket) {
      piece.plan_hash = hash_.value();
      end_bucket();
    }
    pieces.push_back(piece);
  } while (done < total);
  ++weights_;
  return pieces;
}

void BucketCutter::end_bucket() noexcept {
  ++bucket_;
  length_ = 0;
  has_pieces_ = false;
}

BucketPlan plan_buckets(const std::vector<WeightInfo>& weights, const CutRules& rules) {
  BucketPlan plan;
  BucketCutter cutter(rules);
  for (const WeightInfo& weight : weights) {
    for (const Piece& piece : cutter.add(weight)) {
      if (plan.buckets.size() <= piece.bucket) plan.buckets.emplace_back();
      PlannedBucket& bucket = plan.buckets.back();
      bucket.length = piece.offset_in_bucket + piece.size;
      bucket.plan_hash = piece.plan_hash;
      bucket.pieces.push_back(piece);
      plan.total_bytes += piece.size;
    }
  }
  if (cutter.has_open_bucket()) plan.buckets.back().plan_hash = cutter.plan_hash();
  plan.plan_hash = cutter.plan_hash();
  return plan;
}

std::uint64_t manifest_hash(const std::vector<WeightInfo>& weights) {
  RollingHash hash;
  for (const WeightInfo& weight : weights) add_to(hash, weight);
  return hash.value();
}

std::optional<std::string> first_difference(const std::vector<WeightInfo>& a, std::string_view a_is,
                                            const std::vector<WeightInfo>& b, std::string_view b_is,
                                            std::uint64_t first) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].name == b[i].name && a[i].dtype == b[i].dtype && a[i].shape == b[i].shape) continue;
    return formatted("weight {} is {} on {} and {} on {}", first + i, text_of(a[i]), a_is, text_of(b[i]), b_is);
  }
  return std::nullopt;
}

}  // namespace dbg::broadcast
