// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Values other than tensors between members, on the wire of torch.distributed's object collectives.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "distributed/collective_call.h"
#include "distributed/group_half.h"

namespace dbg::distributed {

/// How much of what others announce is believed.
struct ObjectOptions : CallOptions {
  /// Of one object's bytes, and four times that for those of all members together. A longer announcement allocates
  /// nothing.
  std::int64_t max_bytes = std::int64_t{1} << 30;
};

// The wire, as Python has it, so that Python ranks can be members:
// - an object is a pickle; what the reader takes stands in codec/pickle_reader.h, and it calls nothing.
// - broadcast_object: broadcast of one int64, the length; broadcast of so many uint8.
// - all_gather_object, gather_object: all_gather of the lengths; all_gather or gather of uint8, each padded to the
//   longest.
// - send_object, recv_object: the length under tag 0, then the bytes.
// - A member that could not pickle its object sends length 0 and takes part in the rest: all leave together. (Python
//   raises EOFError on that.)
//
// Throws, besides what collectives do: ConfigError on the rank whose object can't be pickled; CommError on the others
// (unsupported, the rank in `peers`); CommError(unsupported) where an object that arrived can't be held by a
// c10::IValue, with what and where; CommError(handshake_mismatch) for lengths that are not believed, which breaks the
// group.

/// The object of one member, on all. The others' `object` is ignored.
c10::IValue broadcast_object(GroupHalf& half, const c10::IValue& object, int src_in_group = 0,
                             const ObjectOptions& options = {});

/// The objects of all members, in the group's order.
std::vector<c10::IValue> all_gather_object(GroupHalf& half, const c10::IValue& object,
                                           const ObjectOptions& options = {});

/// The same on one member; the others get nothing.
std::vector<c10::IValue> gather_object(GroupHalf& half, const c10::IValue& object, int dst_in_group = 0,
                                       const ObjectOptions& options = {});

void send_object(GroupHalf& half, const c10::IValue& object, int dst_in_group, const ObjectOptions& options = {});
c10::IValue recv_object(GroupHalf& half, int src_in_group, const ObjectOptions& options = {});

}  // namespace dbg::distributed
