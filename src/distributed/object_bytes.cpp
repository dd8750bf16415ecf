// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Pickles values into tensors of bytes and back.
#include "distributed/object_bytes.h"

#include <ATen/ATen.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "codec/archive.h"
#include "codec/archive_reader.h"
#include "distributed/p2p.h"
#include "distributed/wire_tensor.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

constexpr const char* kAdviceTypes = "send None, bool, int, float, text, tensors, and lists, tuples and dicts of these";

at::Tensor empty_bytes(std::int64_t length) {
  return at::empty({length}, at::kByte);
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = empty_bytes(static_cast<std::int64_t>(text.size()));
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

void run_broadcast(CollectiveCall& call, const at::Tensor& tensor, int src_in_group) {
  std::vector<at::Tensor> tensors{tensor};
  call.run({tensor.numel(), tensor.numel(), tensor.scalar_type(), -1,
            terms_of(call, call.is_compared() ? formatted("(from {}) ", src_in_group) : "", tensor)},
           [&](milliseconds left) {
             c10d::BroadcastOptions options;
             options.rootRank = src_in_group;
             options.timeout = left;
             return call.backend().broadcast(tensors, options);
           });
}

}  // namespace

EncodedObject encode_with(c10::function_ref<std::string()> write) {
  try {
    return {bytes_of(write()), nullptr};
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return {empty_bytes(0), std::current_exception()};
  }
}

EncodedObject encode_object(const c10::IValue& object) {
  return encode_with([&] {
    codec::PickleWriter out(kPickleProtocol);
    codec::write_value(out, object, emit_tensor_with_bytes);
    return out.finish();
  });
}

void emit_tensor_with_bytes(codec::PickleWriter& out, const at::Tensor& tensor) {
  out.global("torch.storage", "_load_from_bytes");
  out.bytes(codec::archive_bytes(tensor));
  out.tuple_of_last(1);
  out.reduce();
}

c10::IValue decode_object(CollectiveCall& call, const at::Tensor& bytes, int source_in_group, std::int64_t max_bytes) {
  const std::vector<int> source = global_ranks(call.half(), {source_in_group});
  if (bytes.numel() == 0) {
    call.fail(CommErrorKind::unsupported, formatted("rank {} could not pickle its object", source.front()),
              "see that rank's own error", source);
  }
  codec::ReadLimits limits;
  limits.max_pickle_bytes = static_cast<std::uint64_t>(max_bytes);
  limits.max_tensor_bytes = static_cast<std::uint64_t>(max_bytes);
  std::vector<codec::Refusal> refusals;
  c10::IValue value;
  const auto refusal = base::run_fenced([&] {
    value =
        codec::read_pickle_bytes(bytes.const_data_ptr(), static_cast<std::size_t>(bytes.numel()), limits, &refusals);
  });
  if (refusal) {
    call.fail(CommErrorKind::unsupported,
              formatted("the object of rank {} can't be read: {}", source.front(), *refusal), kAdviceTypes, source);
  }
  if (!refusals.empty()) {
    call.fail(CommErrorKind::unsupported,
              formatted("the object of rank {} holds {} at value{}", source.front(), refusals.front().reason,
                        refusals.front().path),
              kAdviceTypes, source);
  }
  return value;
}

void require_length(CollectiveCall& call, std::int64_t length, int source_in_group, std::int64_t max_bytes,
                    const char* advice) {
  if (length >= 0 && length <= max_bytes) return;
  const std::vector<int> source = global_ranks(call.half(), {source_in_group});
  call.break_group(
      CommErrorKind::handshake_mismatch,
      formatted("rank {} announces an object of {} bytes; 0 to {} are accepted", source.front(), length, max_bytes),
      formatted("see whether all ranks make the same calls in the same order; {}", advice), source);
}

at::Tensor broadcast_bytes(CollectiveCall& call, const EncodedObject& encoded, int src_in_group,
                           std::int64_t max_bytes) {
  const bool is_source = call.half().rank_in_group == src_in_group;
  const at::Tensor length = at::empty({1}, at::kLong);
  if (is_source) *length.mutable_data_ptr<std::int64_t>() = encoded.bytes.numel();
  run_broadcast(call, length, src_in_group);
  const std::int64_t announced = *length.const_data_ptr<std::int64_t>();
  if (!is_source) require_length(call, announced, src_in_group, max_bytes);
  const at::Tensor bytes = is_source ? encoded.bytes : empty_bytes(announced);
  run_broadcast(call, bytes, src_in_group);
  return bytes;
}

void send_bytes(CollectiveCall& call, const EncodedObject& encoded, int dst_in_group) {
  const at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = encoded.bytes.numel();
  send_within(call, length, dst_in_group, kDefaultTag);
  send_within(call, encoded.bytes, dst_in_group, kDefaultTag);
}

at::Tensor recv_bytes(CollectiveCall& call, int src_in_group, std::int64_t max_bytes) {
  const at::Tensor length = at::empty({1}, at::kLong);
  recv_within(call, length, src_in_group, kDefaultTag);
  const std::int64_t announced = *length.const_data_ptr<std::int64_t>();
  require_length(call, announced, src_in_group, max_bytes);
  at::Tensor bytes = empty_bytes(announced);
  recv_within(call, bytes, src_in_group, kDefaultTag);
  return bytes;
}

namespace {

std::vector<std::int64_t> gather_lengths(CollectiveCall& call, std::int64_t own) {
  GroupHalf& half = call.half();
  const at::Tensor lengths = at::empty({half.size()}, at::kLong);
  // One tensor of one element a member, as Python has it.
  std::vector<std::vector<at::Tensor>> outputs{lengths.split(1)};
  std::vector<at::Tensor> inputs{at::full({1}, own, at::kLong)};
  call.run({1, half.size(), at::kLong}, [&](milliseconds left) {
    c10d::AllgatherOptions options;
    options.timeout = left;
    return call.backend().allgather(outputs, inputs, options);
  });
  const auto* data = lengths.const_data_ptr<std::int64_t>();
  return {data, data + half.size()};
}

// The longest.
std::int64_t require_lengths(CollectiveCall& call, const std::vector<std::int64_t>& lengths, const ByteLimits& limits) {
  std::int64_t longest = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    require_length(call, lengths[rank], static_cast<int>(rank), limits.one_member, limits.advice);
    longest = std::max(longest, lengths[rank]);
  }
  const auto members = static_cast<std::int64_t>(lengths.size());
  if (longest > limits.all_members / members) {
    call.break_group(CommErrorKind::handshake_mismatch,
                     formatted("{} objects padded to {} bytes are above the limit of {} bytes together", members,
                               longest, limits.all_members),
                     limits.advice);
  }
  return longest;
}

at::Tensor padded(const at::Tensor& bytes, std::int64_t length) {
  if (bytes.numel() == length) return bytes;
  at::Tensor all = at::zeros({length}, at::kByte);
  if (bytes.numel() > 0) {
    std::memcpy(all.mutable_data_ptr(), bytes.const_data_ptr(), static_cast<std::size_t>(bytes.numel()));
  }
  return all;
}

// The members' bytes without the padding.
std::vector<at::Tensor> rows_of(const at::Tensor& block, const std::vector<std::int64_t>& lengths) {
  std::vector<at::Tensor> rows;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    rows.push_back(block.select(0, static_cast<std::int64_t>(rank)).narrow(0, 0, lengths[rank]));
  }
  return rows;
}

}  // namespace

std::vector<at::Tensor> all_gather_bytes(CollectiveCall& call, const at::Tensor& bytes, const ByteLimits& limits) {
  GroupHalf& half = call.half();
  const std::vector<std::int64_t> lengths = gather_lengths(call, bytes.numel());
  const std::int64_t longest = require_lengths(call, lengths, limits);
  const at::Tensor block = at::empty({half.size(), longest}, at::kByte);
  std::vector<std::vector<at::Tensor>> outputs{block.unbind(0)};
  std::vector<at::Tensor> inputs{padded(bytes, longest)};
  call.run({longest, block.numel(), at::kByte}, [&](milliseconds left) {
    c10d::AllgatherOptions options;
    options.timeout = left;
    return call.backend().allgather(outputs, inputs, options);
  });
  return rows_of(block, lengths);
}

std::vector<at::Tensor> gather_bytes(CollectiveCall& call, const at::Tensor& bytes, int dst_in_group,
                                     const ByteLimits& limits) {
  GroupHalf& half = call.half();
  const std::vector<std::int64_t> lengths = gather_lengths(call, bytes.numel());
  const std::int64_t longest = require_lengths(call, lengths, limits);
  const bool is_destination = half.rank_in_group == dst_in_group;
  at::Tensor block;
  std::vector<std::vector<at::Tensor>> outputs;
  if (is_destination) {
    block = at::empty({half.size(), longest}, at::kByte);
    outputs.push_back(block.unbind(0));
  }
  std::vector<at::Tensor> inputs{padded(bytes, longest)};
  call.run({longest, is_destination ? block.numel() : 0, at::kByte}, [&](milliseconds left) {
    c10d::GatherOptions options;
    options.rootRank = dst_in_group;
    options.timeout = left;
    return call.backend().gather(outputs, inputs, options);
  });
  return is_destination ? rows_of(block, lengths) : std::vector<at::Tensor>();
}

}  // namespace dbg::distributed
