// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Collectives of tensors on one half of a group. Ranks in arguments are ranks within the group, as in SGLang's
// GroupCoordinator: `_in_group` says so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "dbg/reduce_op.h"
#include "distributed/collective_call.h"
#include "distributed/group_half.h"

namespace dbg::distributed {

// Of all of these:
//
// Collective: every member calls them in the same order, with tensors of the same shape and dtype. (A half made with
// `check` compares that; a bare gloo one reads bytes as they come.)
// Any strides, any dtype of plain elements, CUDA tensors on a gloo half too: what the backend can't take is copied
// there and back. Autograd does not see it. Throws: ConfigError for arguments that no group could serve, before
// anything is sent; CommError within the deadline and kLongestOverrun.

/// Replaces `tensor` by the reduction of all members' tensors.
void all_reduce(GroupHalf& half, const at::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                const CallOptions& options = {});

/// The members' tensors joined along `dim` (negative: from the end), in the group's order.
/// Shape: `[.., size * d, ..]` of `[.., d, ..]`.
at::Tensor all_gather(GroupHalf& half, const at::Tensor& tensor, std::int64_t dim = -1,
                      const CallOptions& options = {});

/// The members' tensors, one each, in the group's order.
std::vector<at::Tensor> all_gather_list(GroupHalf& half, const at::Tensor& tensor, const CallOptions& options = {});

/// Reduces all members' tensors and gives each member its part along `dim`, the first to the first.
/// Shape: `[.., d / size, ..]` of `[.., d, ..]`.
at::Tensor reduce_scatter(GroupHalf& half, const at::Tensor& tensor, ReduceOp op = ReduceOp::sum, std::int64_t dim = 0,
                          const CallOptions& options = {});

/// As all_gather, on one member; the others get an undefined tensor.
at::Tensor gather(GroupHalf& half, const at::Tensor& tensor, int dst_in_group = 0, std::int64_t dim = -1,
                  const CallOptions& options = {});

/// As all_gather_list, on one member; the others get nothing.
std::vector<at::Tensor> gather_list(GroupHalf& half, const at::Tensor& tensor, int dst_in_group = 0,
                                    const CallOptions& options = {});

/// Replaces `tensor` by that of one member.
void broadcast(GroupHalf& half, const at::Tensor& tensor, int src_in_group = 0, const CallOptions& options = {});

/// Returns when every member has called it.
void barrier(GroupHalf& half, const CallOptions& options = {});

/// The same, and when someone does not come, every member that did learns who: CommError(peer_missing) with `peers`.
///
/// With a store the members meet there, and the group can still be used after a failure. Without one, gloo's own form
/// is used: only the first member learns the names, and the group is broken by a failure.
void monitored_barrier(GroupHalf& half, const CallOptions& options = {});

}  // namespace dbg::distributed
