// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A group's collectives: which half carries what.
#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/backends.h"
#include "distributed/collectives.h"
#include "distributed/group_calls.h"

namespace dbg {

using distributed::call_options;
using distributed::half_for;
using distributed::open_half;

void GroupCoordinator::all_reduce(const at::Tensor& tensor, ReduceOp op, const OperationOptions& options) {
  distributed::all_reduce(half_for(*impl_, tensor), tensor, op, call_options(options));
}

at::Tensor GroupCoordinator::all_gather(const at::Tensor& tensor, std::int64_t dim, const OperationOptions& options) {
  return distributed::all_gather(half_for(*impl_, tensor), tensor, dim, call_options(options));
}

std::vector<at::Tensor> GroupCoordinator::all_gather_list(const at::Tensor& tensor, const OperationOptions& options) {
  return distributed::all_gather_list(half_for(*impl_, tensor), tensor, call_options(options));
}

at::Tensor GroupCoordinator::reduce_scatter(const at::Tensor& tensor, ReduceOp op, std::int64_t dim,
                                            const OperationOptions& options) {
  return distributed::reduce_scatter(half_for(*impl_, tensor), tensor, op, dim, call_options(options));
}

at::Tensor GroupCoordinator::gather(const at::Tensor& tensor, int dst, std::int64_t dim,
                                    const OperationOptions& options) {
  return distributed::gather(half_for(*impl_, tensor), tensor, dst, dim, call_options(options));
}

void GroupCoordinator::broadcast(const at::Tensor& tensor, int src, const OperationOptions& options) {
  distributed::broadcast(half_for(*impl_, tensor), tensor, src, call_options(options));
}

void GroupCoordinator::barrier(const OperationOptions& options) {
  distributed::barrier(open_half(*impl_, impl_->cpu), call_options(options));
}

void GroupCoordinator::monitored_barrier(const OperationOptions& options) {
  distributed::monitored_barrier(open_half(*impl_, impl_->cpu), call_options(options));
}

namespace distributed {

GroupHalf& open_half(const GroupCoordinator::Impl& impl, const std::shared_ptr<OwnedHalf>& half) {
  if (impl.is_closed.load()) throw LogicError(formatted("group '{}' was closed; make it anew.", impl.name));
  return half->state;
}

GroupHalf& half_for(const GroupCoordinator::Impl& impl, const at::Tensor& tensor) {
  const bool goes_by_cpu = tensor.defined() && tensor.is_cpu() && is_nccl(impl.device->kind);
  return open_half(impl, goes_by_cpu ? impl.cpu : impl.device);
}

CallOptions call_options(const OperationOptions& options) {
  CallOptions call;
  if (options.timeout != std::chrono::milliseconds::zero()) call.timeout = options.timeout;
  return call;
}

}  // namespace distributed
}  // namespace dbg
