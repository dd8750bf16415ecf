// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The object collectives: lengths first, then bytes, both halves under one deadline.
#include "distributed/objects.h"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "base/formatted.h"
#include "distributed/object_bytes.h"
#include "distributed/p2p.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

std::vector<c10::IValue> decode_all(CollectiveCall& call, const std::vector<at::Tensor>& all, std::int64_t max_bytes) {
  std::vector<c10::IValue> objects;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    objects.push_back(decode_object(call, all[rank], static_cast<int>(rank), max_bytes));
  }
  return objects;
}

// Of all members' padded bytes together.
std::int64_t of_all_members(std::int64_t max_bytes) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return max_bytes <= kMost / 4 ? 4 * max_bytes : kMost;
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
  const std::vector<at::Tensor> all =
      all_gather_bytes(call, encoded.bytes, options.max_bytes, of_all_members(options.max_bytes));
  encoded.rethrow_if_failed();
  return decode_all(call, all, options.max_bytes);
}

std::vector<c10::IValue> gather_object(GroupHalf& half, const c10::IValue& object, int dst_in_group,
                                       const ObjectOptions& options) {
  CollectiveCall call(half, "gather_object", options);
  require_member(half, "gather_object", "dst_in_group", dst_in_group);
  require_limit(half, options.max_bytes);
  const EncodedObject encoded = encode_object(object);
  const std::vector<std::int64_t> lengths = gather_lengths(call, encoded.bytes.numel());
  const std::int64_t longest = require_lengths(call, lengths, options.max_bytes, of_all_members(options.max_bytes));
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
  return block.defined() ? decode_all(call, rows_of(block, lengths), options.max_bytes) : std::vector<c10::IValue>();
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
