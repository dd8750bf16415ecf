// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Copies pieces to their places, or hands out views.
#include "broadcast/weight_assembly.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "broadcast/scope_time.h"
#include "broadcast/sync_run.h"
#include "dbg/error.h"

namespace dbg::broadcast {

at::Tensor bytes_of(const at::Tensor& contiguous) {
  return at::from_blob(
      const_cast<void*>(contiguous.const_data_ptr()), {static_cast<std::int64_t>(contiguous.nbytes())},
      [keeps_alive = contiguous](void*) {}, at::TensorOptions().dtype(at::kByte));
}

at::Tensor tensor_of(const at::Tensor& bytes, const WeightInfo& weight) {
  return bytes.view(weight.dtype).reshape(weight.shape);
}

WeightAssembly::WeightAssembly(const CutRules& rules, Integrity integrity, WeightSink& sink)
    : rules_(rules), integrity_(integrity), sink_(sink), cutter_(rules) {}

void WeightAssembly::refuse(std::string cause) const {
  CommFailure failure;
  failure.kind = CommErrorKind::handshake_mismatch;
  failure.operation = "receive";
  failure.cause = std::move(cause);
  failure.advice = "see whether all ranks run the same build with the same options; nothing was committed";
  throw CommError(std::move(failure));
}

std::string WeightAssembly::current_weight() const {
  if (pieces_.empty()) return formatted("weight {}", cutter_.num_weights());
  const auto found = open_.find(pieces_.front().weight);
  return formatted("weight {} '{}'", pieces_.front().weight, found == open_.end() ? "" : found->second.info.name);
}

void WeightAssembly::take(const ControlMessage& message, const at::Tensor& memory) {
  const Header& header = message.header;
  if (header.bucket != next_bucket_ || has_short_bucket_) {
    refuse(formatted("bucket {} came where {} was due", header.bucket,
                     has_short_bucket_ ? std::string("the commit record") : formatted("bucket {}", next_bucket_)));
  }
  if (header.has_digests != (integrity_ != Integrity::none)) {
    refuse(formatted("bucket {} comes {} digests", header.bucket, header.has_digests ? "with" : "without"));
  }
  const std::vector<WeightInfo> infos = infos_of(header, message.infos);
  {
    const ScopeTime timed(pack_seconds_);
    if (header.has_digests) {
      const std::uint64_t digest = digest_of(memory.const_data_ptr(), header.length);
      if (digest != header.payload_digest) {
        std::string first = pieces_.empty() ? "" : open_.at(pieces_.front().weight).info.name;
        if (first.empty() && !infos.empty()) first = infos.front().name;
        CommFailure failure;
        failure.kind = CommErrorKind::broken;
        failure.operation = "receive";
        failure.cause = formatted(
            "bucket {} was damaged on the way: its digest is {:08x}, and {:08x} was sent; its first weight is '{}'",
            header.bucket, digest, header.payload_digest, first);
        failure.advice = "look at the network and the memory of this machine; nothing was committed";
        throw CommError(std::move(failure));
      }
      payload_digests_ = digest_of(&digest, sizeof digest, payload_digests_);
    }
  }
  if (header.first_weight != cutter_.num_weights()) {
    refuse(formatted("bucket {} begins with weight {}, and {} is due", header.bucket, header.first_weight,
                     cutter_.num_weights()));
  }
  std::uint64_t hash = cutter_.plan_hash();
  std::uint64_t length = cutter_.bucket() == header.bucket ? cutter_.length() : 0;
  for (const WeightInfo& info : infos) {
    if (cutter_.bucket() != header.bucket) {
      refuse(formatted("weight {} can't begin in bucket {}, which is full", text_of(info), header.bucket));
    }
    Open open;
    open.info = info;
    open_.emplace(cutter_.num_weights(), std::move(open));
    for (const Piece& piece : cutter_.add(info)) pieces_.push_back(piece);
    hash = cutter_.plan_hash();
  }
  bool ends = false;
  for (const Piece& piece : pieces_) {
    if (piece.bucket != header.bucket) break;
    length = piece.offset_in_bucket + piece.size;
    if (!piece.ends_bucket) continue;
    hash = piece.plan_hash;
    ends = true;
  }
  if (length != header.length || hash != header.plan_hash) {
    refuse(formatted(
        "bucket {} was cut differently: {} bytes and plan hash {:016x} on the root, {} bytes and {:016x} here",
        header.bucket, header.length, header.plan_hash, length, hash));
  }
  if (!ends) {
    has_short_bucket_ = true;
    cutter_.end_bucket();
  }
  while (!pieces_.empty() && pieces_.front().bucket == header.bucket) {
    take_piece(pieces_.front(), memory);
    pieces_.pop_front();
  }
  ++next_bucket_;
}

at::Tensor WeightAssembly::storage_for(const WeightInfo& info, bool needs_one) {
  at::Tensor storage;
  if (!has_touched_sink_ && on_first_touch_) on_first_touch_();
  has_touched_sink_ = true;
  const ScopeTime timed(sink_seconds_);
  if (const auto refusal = base::run_fenced([&] { storage = sink_.storage_for(info); })) {
    throw ForeignFailure{formatted("its sink failed to make room for weight {}: {}", text_of(info), *refusal)};
  }
  if (!storage.defined()) return needs_one ? at::empty(info.shape, at::TensorOptions().dtype(info.dtype)) : storage;
  if (storage.is_conj() || storage.is_neg()) {
    throw ForeignFailure{
        formatted("its sink gave a conjugate or negative view as place for weight {}, whose bytes are not its values",
                  text_of(info))};
  }
  if (!storage.is_cpu() || storage.layout() != at::kStrided || !storage.is_contiguous() ||
      storage.scalar_type() != info.dtype || storage.sizes() != at::IntArrayRef(info.shape)) {
    throw ForeignFailure{formatted("its sink gave a place of another dtype, shape or device for weight {}: {}",
                                   text_of(info), storage.toString())};
  }
  return storage;
}

void WeightAssembly::take_piece(const Piece& piece, const at::Tensor& memory) {
  Open& open = open_.at(piece.weight);
  const auto begin = static_cast<std::int64_t>(piece.offset_in_bucket);
  const auto size = static_cast<std::int64_t>(piece.size);
  if (piece.begins_weight) {
    open.storage = storage_for(open.info, !piece.ends_weight || size == 0);
    if (open.storage.defined() && size > 0) open.bytes = bytes_of(open.storage.detach());
  }
  total_bytes_ += piece.size;
  if (size > 0) {
    const ScopeTime timed(pack_seconds_);
    const auto* from = static_cast<const std::byte*>(memory.const_data_ptr()) + begin;
    if (integrity_ == Integrity::weight) open.digest = digest_of(from, piece.size, open.digest);
    if (open.bytes.defined()) {
      std::memcpy(static_cast<std::byte*>(open.bytes.mutable_data_ptr()) + piece.offset_in_weight, from, piece.size);
    }
  }
  if (!piece.ends_weight) return;
  if (integrity_ == Integrity::weight) {
    weight_digests_.add(std::string_view(open.info.name));
    weight_digests_.add(open.digest);
    digests_[open.info.name] = open.digest;
  }
  if (open.storage.defined()) {
    hand_over(open.info, open.storage, false);
  } else {
    hand_over(open.info, tensor_of(memory.narrow(0, begin, size), open.info), true);
  }
  open_.erase(piece.weight);
}

void WeightAssembly::hand_over(const WeightInfo& info, const at::Tensor& tensor, bool is_view) {
  const ScopeTime timed(sink_seconds_);
  if (const auto refusal = base::run_fenced([&] { sink_.take(info, tensor, is_view); })) {
    throw ForeignFailure{
        formatted("its sink failed at weight {} in bucket {}: {}", text_of(info), next_bucket_, *refusal)};
  }
}

void WeightAssembly::finish(const Header& commit) const {
  if (!pieces_.empty()) {
    refuse(formatted("the stream ends in the middle of {}, after {} of its bytes", current_weight(),
                     pieces_.front().offset_in_weight));
  }
  const auto compare = [&](const char* what, std::uint64_t sent, std::uint64_t own) {
    if (sent != own) refuse(formatted("the commit record says {} {}, and {} came", sent, what, own));
  };
  if (!commit.is_last) refuse("the commit record says that more follows");
  if (version_ && commit.model_version != *version_) {
    refuse(formatted("the commit record is of version {}, and version {} is due", commit.model_version, *version_));
  }
  compare("buckets", commit.bucket, next_bucket_);
  compare("weights", commit.num_weights, cutter_.num_weights());
  compare("bytes", commit.total_bytes, total_bytes_);
  compare("as plan hash", commit.plan_hash, cutter_.plan_hash());
  if (integrity_ != Integrity::none) compare("as digest of all payloads", commit.payload_digest, payload_digests_);
  if (integrity_ == Integrity::weight)
    compare("as digest of all weights", commit.weights_digest, weight_digests_.value());
}

}  // namespace dbg::broadcast
