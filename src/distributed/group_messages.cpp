// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A group's objects, tensor dicts and messages between two members: which half carries what.
#include <optional>

#include "distributed/group_calls.h"
#include "distributed/objects.h"
#include "distributed/p2p.h"
#include "distributed/tensor_dict.h"

namespace dbg {

using distributed::call_options;
using distributed::half_for;
using distributed::open_half;

namespace {

template <class Options>
Options options_of(const OperationOptions& options) {
  Options all;
  static_cast<distributed::CallOptions&>(all) = call_options(options);
  return all;
}

distributed::GroupPair pair_of(const GroupCoordinator::Impl& impl) {
  return {open_half(impl, impl.device), open_half(impl, impl.cpu)};
}

}  // namespace

void GroupCoordinator::send(const at::Tensor& tensor, int dst, int tag, const OperationOptions& options) {
  distributed::send(half_for(*impl_, tensor), tensor, dst, tag, call_options(options));
}

void GroupCoordinator::recv(const at::Tensor& tensor, int src, int tag, const OperationOptions& options) {
  distributed::recv(half_for(*impl_, tensor), tensor, src, tag, call_options(options));
}

c10::IValue GroupCoordinator::broadcast_object(const c10::IValue& object, int src, const OperationOptions& options) {
  return distributed::broadcast_object(open_half(*impl_, impl_->cpu), object, src,
                                       options_of<distributed::ObjectOptions>(options));
}

std::vector<c10::IValue> GroupCoordinator::all_gather_object(const c10::IValue& object,
                                                             const OperationOptions& options) {
  return distributed::all_gather_object(open_half(*impl_, impl_->cpu), object,
                                        options_of<distributed::ObjectOptions>(options));
}

std::vector<c10::IValue> GroupCoordinator::gather_object(const c10::IValue& object, int dst,
                                                         const OperationOptions& options) {
  return distributed::gather_object(open_half(*impl_, impl_->cpu), object, dst,
                                    options_of<distributed::ObjectOptions>(options));
}

void GroupCoordinator::send_object(const c10::IValue& object, int dst, const OperationOptions& options) {
  distributed::send_object(open_half(*impl_, impl_->cpu), object, dst, options_of<distributed::ObjectOptions>(options));
}

c10::IValue GroupCoordinator::recv_object(int src, const OperationOptions& options) {
  return distributed::recv_object(open_half(*impl_, impl_->cpu), src, options_of<distributed::ObjectOptions>(options));
}

TensorDict GroupCoordinator::broadcast_tensor_dict(const TensorDict& dict, int src, const OperationOptions& options) {
  return distributed::broadcast_tensor_dict(pair_of(*impl_), dict, src,
                                            options_of<distributed::TensorDictOptions>(options));
}

void GroupCoordinator::send_tensor_dict(const TensorDict& dict, const OperationOptions& options) {
  distributed::send_tensor_dict(pair_of(*impl_), dict, std::nullopt,
                                options_of<distributed::TensorDictOptions>(options));
}

void GroupCoordinator::send_tensor_dict(const TensorDict& dict, int dst, const OperationOptions& options) {
  distributed::send_tensor_dict(pair_of(*impl_), dict, dst, options_of<distributed::TensorDictOptions>(options));
}

TensorDict GroupCoordinator::recv_tensor_dict(const OperationOptions& options) {
  return distributed::recv_tensor_dict(pair_of(*impl_), std::nullopt,
                                       options_of<distributed::TensorDictOptions>(options));
}

TensorDict GroupCoordinator::recv_tensor_dict(int src, const OperationOptions& options) {
  return distributed::recv_tensor_dict(pair_of(*impl_), src, options_of<distributed::TensorDictOptions>(options));
}

}  // namespace dbg
