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

inline constexpr const char* kAdviceTooLong = "send what is so large as tensors";

/// Throws, and breaks the group, unless `length` is between 0 and `max_bytes`.
void require_length(CollectiveCall& call, std::int64_t length, int source_in_group, std::int64_t max_bytes,
                    const char* advice = kAdviceTooLong);

/// `encoded.bytes` of one member, on all.
at::Tensor broadcast_bytes(CollectiveCall& call, const EncodedObject& encoded, int src_in_group,
                           std::int64_t max_bytes);

/// Which lengths are believed. Every member comes to the same answer, so that all leave together.
struct ByteLimits {
  std::int64_t one_member = 0;
  std::int64_t all_members = 0;  ///< together, each padded to the longest
  const char* advice = kAdviceTooLong;
};

/// `bytes` of all members, in the group's order.
std::vector<at::Tensor> all_gather_bytes(CollectiveCall& call, const at::Tensor& bytes, const ByteLimits& limits);
/// The same on one member; the others get nothing.
std::vector<at::Tensor> gather_bytes(CollectiveCall& call, const at::Tensor& bytes, int dst_in_group,
                                     const ByteLimits& limits);

void send_bytes(CollectiveCall& call, const EncodedObject& encoded, int dst_in_group);
at::Tensor recv_bytes(CollectiveCall& call, int src_in_group, std::int64_t max_bytes);

}  // namespace dbg::distributed
