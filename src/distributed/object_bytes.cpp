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
  call.run({tensor.numel(), tensor.numel(), tensor.scalar_type()}, [&](milliseconds left) {
    c10d::BroadcastOptions options;
    options.rootRank = src_in_group;
    options.timeout = left;
    return call.half().backend->broadcast(tensors, options);
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

void require_length(CollectiveCall& call, std::int64_t length, int source_in_group, std::int64_t max_bytes) {
  if (length >= 0 && length <= max_bytes) return;
  const std::vector<int> source = global_ranks(call.half(), {source_in_group});
  call.break_group(
      CommErrorKind::handshake_mismatch,
      formatted("rank {} announces an object of {} bytes; 0 to {} are accepted", source.front(), length, max_bytes),
      "see whether all ranks make the same calls in the same order; raise max_bytes if objects are so large", source);
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

}  // namespace dbg::distributed
