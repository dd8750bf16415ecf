// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The object collectives: lengths first, then bytes, both halves under one deadline.
#include "distributed/objects.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/formatted.h"
#include "distributed/object_bytes.h"
#include "distributed/p2p.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

std::vector<std::int64_t> gather_lengths(CollectiveCall& call, std::int64_t own) {
  GroupHalf& half = call.half();
  const at::Tensor lengths = at::empty({half.size()}, at::kLong);
  // One tensor of one element a member, as Python has it.
  std::vector<std::vector<at::Tensor>> outputs{lengths.split(1)};
  std::vector<at::Tensor> inputs{at::full({1}, own, at::kLong)};
  call.run({1, half.size(), at::kLong}, [&](milliseconds left) {
    c10d::AllgatherOptions options;
    options.timeout = left;
    return half.backend->allgather(outputs, inputs, options);
  });
  const auto* data = lengths.const_data_ptr<std::int64_t>();
  return {data, data + half.size()};
}

// The longest. Every member comes to the same answer, so that all leave together.
std::int64_t require_lengths(CollectiveCall& call, const std::vector<std::int64_t>& lengths, std::int64_t max_bytes) {
  std::int64_t longest = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    require_length(call, lengths[rank], static_cast<int>(rank), max_bytes);
    longest = std::max(longest, lengths[rank]);
  }
  const auto members = static_cast<std::int64_t>(lengths.size());
  if (longest > 4 * (max_bytes / members)) {
    call.break_group(
        CommErrorKind::handshake_mismatch,
        formatted("{} objects padded to {} bytes are above the limit of 4 x {}", members, longest, max_bytes),
        "raise max_bytes on all ranks if objects are so large");
  }
  return longest;
}

at::Tensor padded(const at::Tensor& bytes, std::int64_t length) {
  at::Tensor all = at::zeros({length}, at::kByte);
  if (bytes.numel() > 0)
    std::memcpy(all.mutable_data_ptr(), bytes.const_data_ptr(), static_cast<std::size_t>(bytes.numel()));
  return all;
}

std::vector<c10::IValue> decode_all(CollectiveCall& call, const at::Tensor& block,
                                    const std::vector<std::int64_t>& lengths, std::int64_t max_bytes) {
  std::vector<c10::IValue> objects;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const at::Tensor bytes = block.select(0, static_cast<std::int64_t>(rank)).narrow(0, 0, lengths[rank]);
    objects.push_back(decode_object(call, bytes, static_cast<int>(rank), max_bytes));
  }
  return objects;
}

void require_limit(const GroupHalf& half, std::int64_t max_bytes) {
  if (max_bytes > 0) return;
  throw ConfigError(formatted("{}: objects with max_bytes {}; it must be positive", half.label, max_bytes));
}

}  // namespace

c10::IValue broadcast_object(GroupHalf& half, const c10::IValue& object, int src_in_group,
                             const ObjectOptions& options) {
  CollectiveCall call(half, "broadcast_object", options);
  require_member(half, "broadcast_object", "src_in_group", src_in_group);
  require_limit(half, options.max_bytes);
  const bool is_source = half.rank_in_group == src_in_group;
  const EncodedObject encoded = is_source ? encode_object(object) : EncodedObject();
  const at::Tensor bytes = broadcast_bytes(call, encoded, src_in_group, options.max_bytes);
  encoded.rethrow_if_failed();
  return is_source ? object : decode_object(call, bytes, src_in_group, options.max_bytes);
}

std::vector<c10::IValue> all_gather_object(GroupHalf& half, const c10::IValue& object, const ObjectOptions& options) {
  CollectiveCall call(half, "all_gather_object", options);
  require_limit(half, options.max_bytes);
  const EncodedObject encoded = encode_object(object);
  const std::vector<std::int64_t> lengths = gather_lengths(call, encoded.bytes.numel());
  const std::int64_t longest = require_lengths(call, lengths, options.max_bytes);
  const at::Tensor block = at::empty({half.size(), longest}, at::kByte);
  std::vector<std::vector<at::Tensor>> outputs{block.unbind(0)};
  std::vector<at::Tensor> inputs{padded(encoded.bytes, longest)};
  call.run({longest, longest * half.size(), at::kByte}, [&](milliseconds left) {
    c10d::AllgatherOptions to_backend;
    to_backend.timeout = left;
    return half.backend->allgather(outputs, inputs, to_backend);
  });
  encoded.rethrow_if_failed();
  return decode_all(call, block, lengths, options.max_bytes);
}

std::vector<c10::IValue> gather_object(GroupHalf& half, const c10::IValue& object, int dst_in_group,
                                       const ObjectOptions& options) {
  CollectiveCall call(half, "gather_object", options);
  require_member(half, "gather_object", "dst_in_group", dst_in_group);
  require_limit(half, options.max_bytes);
  const EncodedObject encoded = encode_object(object);
  const std::vector<std::int64_t> lengths = gather_lengths(call, encoded.bytes.numel());
  const std::int64_t longest = require_lengths(call, lengths, options.max_bytes);
  at::Tensor block;
  std::vector<std::vector<at::Tensor>> outputs;
  if (half.rank_in_group == dst_in_group) {
    block = at::empty({half.size(), longest}, at::kByte);
    outputs.push_back(block.unbind(0));
  }
  std::vector<at::Tensor> inputs{padded(encoded.bytes, longest)};
  call.run({longest, block.defined() ? block.numel() : 0, at::kByte}, [&](milliseconds left) {
    c10d::GatherOptions to_backend;
    to_backend.rootRank = dst_in_group;
    to_backend.timeout = left;
    return half.backend->gather(outputs, inputs, to_backend);
  });
  encoded.rethrow_if_failed();
  return block.defined() ? decode_all(call, block, lengths, options.max_bytes) : std::vector<c10::IValue>();
}

void send_object(GroupHalf& half, const c10::IValue& object, int dst_in_group, const ObjectOptions& options) {
  CollectiveCall call(half, "send_object", options);
  require_other_member(half, "send_object", "dst_in_group", dst_in_group);
  const EncodedObject encoded = encode_object(object);
  send_bytes(call, encoded, dst_in_group);
  encoded.rethrow_if_failed();
}

c10::IValue recv_object(GroupHalf& half, int src_in_group, const ObjectOptions& options) {
  CollectiveCall call(half, "recv_object", options);
  require_other_member(half, "recv_object", "src_in_group", src_in_group);
  require_limit(half, options.max_bytes);
  const at::Tensor bytes = recv_bytes(call, src_in_group, options.max_bytes);
  return decode_object(call, bytes, src_in_group, options.max_bytes);
}

}  // namespace dbg::distributed
