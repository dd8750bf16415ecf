// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Pickles on their way between members: encoding that fails on all ranks together, and lengths that are not believed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "codec/pickle_writer.h"
#include "distributed/collective_call.h"

namespace dbg::distributed {

/// Protocol of the pickles sent. Every Python that torch supports reads it, and it has `bytes` of any length.
inline constexpr int kPickleProtocol = 4;

/// A value pickled, or why it could not be.
struct EncodedObject {
  at::Tensor bytes;          ///< uint8; of no elements where encoding failed
  std::exception_ptr error;  ///< thrown again once the others know

  void rethrow_if_failed() const {
    if (error) std::rethrow_exception(error);
  }
};

/// Runs `write`, which makes a pickle. What it throws is kept.
EncodedObject encode_with(c10::function_ref<std::string()> write);

/// The pickle of `object`, its tensors within it.
EncodedObject encode_object(const c10::IValue& object);

/// Writes a tensor into a plain pickle: `torch.storage._load_from_bytes` of an archive, which Python's unpickler and
/// dbg's reader both make the tensor of.
void emit_tensor_with_bytes(codec::PickleWriter& out, const at::Tensor& tensor);

/// The value of the pickle in `bytes`, which `source_in_group` sent.
/// Throws: CommError(unsupported) by way of `call`.
c10::IValue decode_object(CollectiveCall& call, const at::Tensor& bytes, int source_in_group, std::int64_t max_bytes);

/// Throws, and breaks the group, unless `length` is between 0 and `max_bytes`.
void require_length(CollectiveCall& call, std::int64_t length, int source_in_group, std::int64_t max_bytes);

/// `encoded.bytes` of one member, on all.
at::Tensor broadcast_bytes(CollectiveCall& call, const EncodedObject& encoded, int src_in_group,
                           std::int64_t max_bytes);
/// `bytes` of all members, in the group's order. `max_bytes` is of one member's, `max_all_bytes` of all, each padded to
/// the longest.
std::vector<at::Tensor> all_gather_bytes(CollectiveCall& call, const at::Tensor& bytes, std::int64_t max_bytes,
                                         std::int64_t max_all_bytes);

// The steps of that, for a gather to one member.

std::vector<std::int64_t> gather_lengths(CollectiveCall& call, std::int64_t own);
/// The longest. Every member comes to the same answer, so that all leave together.
std::int64_t require_lengths(CollectiveCall& call, const std::vector<std::int64_t>& lengths, std::int64_t max_bytes,
                             std::int64_t max_all_bytes);
at::Tensor padded(const at::Tensor& bytes, std::int64_t length);
/// The members' bytes without the padding.
std::vector<at::Tensor> rows_of(const at::Tensor& block, const std::vector<std::int64_t>& lengths);

void send_bytes(CollectiveCall& call, const EncodedObject& encoded, int dst_in_group);
at::Tensor recv_bytes(CollectiveCall& call, int src_in_group, std::int64_t max_bytes);

}  // namespace dbg::distributed
