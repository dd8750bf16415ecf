// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Copies pieces into buckets, digests them, pushes what is full.
#include "broadcast/weight_packing.h"

#include <ATen/ATen.h>

#include <cstring>
#include <utility>

#include "base/formatted.h"
#include "broadcast/scope_time.h"
#include "broadcast/weight_assembly.h"
#include "codec/tensor_bytes.h"
#include "dbg/error.h"

namespace dbg::broadcast {

WeightInfo info_of(const Weight& weight) {
  if (!weight.tensor.defined()) {
    throw ConfigError(formatted("the weight '{}' is an undefined tensor; leave it out of the source.", weight.name));
  }
  if (const auto refusal = codec::refusal_of_tensor(weight.tensor)) {
    throw ConfigError(formatted("the weight '{}' can't be sent: {}.", weight.name, *refusal));
  }
  if (weight.tensor.layout() != at::kStrided || weight.tensor.is_quantized()) {
    throw ConfigError(formatted("the weight '{}' is {}; send the dense tensors that it is made of.", weight.name,
                                weight.tensor.toString()));
  }
  WeightInfo info{weight.name, weight.tensor.sizes().vec(), weight.tensor.scalar_type()};
  size_bytes_of(info);
  return info;
}

at::Tensor dense_on_cpu(const at::Tensor& tensor) {
  at::Tensor dense = tensor.detach();
  if (dense.is_conj()) dense = dense.resolve_conj();
  if (dense.is_neg()) dense = dense.resolve_neg();
  return dense.to(at::kCPU).contiguous();
}

WeightPacking::WeightPacking(const CutRules& rules, Integrity integrity, bool has_bytes, bool is_stable,
                             PackingOutput output)
    : rules_(rules),
      integrity_(integrity),
      has_bytes_(has_bytes),
      is_stable_(is_stable),
      output_(std::move(output)),
      cutter_(rules) {}

void WeightPacking::set_sync(std::uint64_t generation, std::int64_t version) {
  generation_ = generation;
  version_ = version;
}

void WeightPacking::add(const WeightInfo& info, const at::Tensor& tensor) {
  const std::vector<Piece> pieces = cutter_.add(info);
  at::Tensor bytes;
  bool may_lend = false;
  if (has_bytes_ && size_bytes_of(info) > 0) {
    const ScopeTime timed(pack_seconds_);
    const at::Tensor dense = dense_on_cpu(tensor);
    // Only the source's own memory is stable; a copy made here would do as well, and lives as long as it is needed.
    may_lend = is_stable_ || dense.const_data_ptr() != tensor.const_data_ptr();
    bytes = bytes_of(dense);
  }
  weight_digest_ = 0;
  for (const Piece& piece : pieces) {
    if (piece.begins_weight) {
      if (infos_.empty()) first_weight_ = piece.weight;
      infos_.push_back(info);
    }
    total_bytes_ += piece.size;
    if (has_bytes_) add_piece(piece, bytes, may_lend);
    bucket_ = piece.bucket;
    length_ = piece.offset_in_bucket + piece.size;
    if (has_bytes_ && piece.ends_weight && integrity_ == Integrity::weight) {
      weight_digests_.add(std::string_view(info.name));
      weight_digests_.add(weight_digest_);
      digests_[info.name] = weight_digest_;
    }
    if (piece.ends_bucket) push_bucket(piece.plan_hash);
  }
}

void WeightPacking::add_piece(const Piece& piece, const at::Tensor& bytes, bool may_lend) {
  if (!slot_.defined()) {
    const ScopeTime timed(wait_seconds_);
    slot_ = output_.acquire();
  }
  if (piece.size == 0) return;
  const ScopeTime timed(pack_seconds_);
  const auto* from = static_cast<const std::byte*>(bytes.const_data_ptr()) + piece.offset_in_weight;
  if (integrity_ == Integrity::weight) weight_digest_ = digest_of(from, piece.size, weight_digest_);
  if (may_lend && piece.offset_in_bucket == 0 && piece.size == rules_.bucket_bytes) {
    lent_ = bytes.narrow(0, static_cast<std::int64_t>(piece.offset_in_weight), static_cast<std::int64_t>(piece.size));
    return;
  }
  auto* to = static_cast<std::byte*>(slot_.mutable_data_ptr());
  // What alignment leaves between weights is sent too, and must not be some earlier weight.
  const std::uint64_t end_before = piece.bucket == bucket_ ? length_ : 0;
  if (piece.offset_in_bucket > end_before) std::memset(to + end_before, 0, piece.offset_in_bucket - end_before);
  std::memcpy(to + piece.offset_in_bucket, from, piece.size);
}

void WeightPacking::push_bucket(std::uint64_t plan_hash) {
  BucketItem item;
  Header& header = item.message.header;
  header.generation = generation_;
  header.bucket = bucket_;
  header.length = length_;
  header.first_weight = infos_.empty() ? cutter_.num_weights() : first_weight_;
  header.num_weights = infos_.size();
  header.plan_hash = plan_hash;
  header.model_version = version_;
  header.total_bytes = total_bytes_;
  header.has_digests = integrity_ != Integrity::none;
  if (has_bytes_) {
    const ScopeTime timed(pack_seconds_);
    item.message.infos = encode_infos(infos_);
    header.info_digest = static_cast<std::uint32_t>(digest_of(item.message.infos.data(), item.message.infos.size()));
    item.slot = std::move(slot_);
    item.memory = lent_.defined() ? std::move(lent_) : item.slot;
    if (header.has_digests) {
      header.payload_digest = digest_of(item.memory.const_data_ptr(), length_);
      payload_digests_ = digest_of(&header.payload_digest, sizeof header.payload_digest, payload_digests_);
    }
  }
  slot_ = at::Tensor();
  lent_ = at::Tensor();
  infos_.clear();
  length_ = 0;
  ++bucket_;
  output_.push(std::move(item));
}

void WeightPacking::finish() {
  if (cutter_.has_open_bucket()) push_bucket(cutter_.plan_hash());
  BucketItem item;
  Header& header = item.message.header;
  header.kind = MessageKind::commit;
  header.is_last = true;
  header.generation = generation_;
  header.bucket = bucket_;
  header.num_weights = cutter_.num_weights();
  header.first_weight = cutter_.num_weights();
  header.plan_hash = cutter_.plan_hash();
  header.model_version = version_;
  header.total_bytes = total_bytes_;
  header.has_digests = integrity_ != Integrity::none;
  header.payload_digest = payload_digests_;
  header.weights_digest = integrity_ == Integrity::weight ? weight_digests_.value() : 0;
  output_.push(std::move(item));
}

}  // namespace dbg::broadcast
