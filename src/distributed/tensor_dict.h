// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Named tensors and values between members: what pipeline stages hand each other.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/collective_call.h"
#include "distributed/group_half.h"

namespace dbg::distributed {

/// Values under unique names, in order. A value that is a tensor travels as one; tensors deeper inside a value travel
/// within its pickle.
using TensorDict = std::vector<std::pair<std::string, c10::IValue>>;

/// The group that carries a dict: metadata and CPU tensors go over `cpu`, the others over `device`.
struct GroupPair {
  GroupHalf& device;
  GroupHalf& cpu;
};

struct TensorDictOptions : CallOptions {
  std::int64_t max_metadata_bytes = std::int64_t{1} << 28;
  /// Of one received tensor. A longer announcement allocates nothing.
  std::int64_t max_tensor_bytes = std::int64_t{64} << 30;
  /// Where received tensors go that were on no CPU; nullopt: the device of that type that is current.
  std::optional<c10::Device> device = std::nullopt;
};

// The wire is SGLang's (sglang/srt/distributed/parallel_state.py, also vLLM's), whose Python ranks can be members: an
// object, the list of `(key, value)`, in which `TensorMetadata(device type, dtype, size)` stands for a tensor; then the
// tensors in that order, those without elements left out. `broadcast_tensor_dict` broadcasts all of it,
// `send_tensor_dict` sends it under tag 0. The twin's all-gather form is not there.
//
// Throws as object collectives do; ConfigError for two equal names.

/// The dict of one member, on all. The others' `dict` is ignored.
TensorDict broadcast_tensor_dict(const GroupPair& group, const TensorDict& dict, int src_in_group = 0,
                                 const TensorDictOptions& options = {});

/// To the member `dst_in_group`, by default the one after this one, around the end.
void send_tensor_dict(const GroupPair& group, const TensorDict& dict, std::optional<int> dst_in_group = std::nullopt,
                      const TensorDictOptions& options = {});

/// From the member `src_in_group`, by default the one before this one, around the end.
TensorDict recv_tensor_dict(const GroupPair& group, std::optional<int> src_in_group = std::nullopt,
                            const TensorDictOptions& options = {});

}  // namespace dbg::distributed
