// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which dtypes travel as what, and what a reduction of them means.
#include "distributed/wire_tensor.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/dtype.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::distributed {
namespace {

using c10::ScalarType;

// What gloo and NCCL both carry and add.
bool is_known_to_backends(ScalarType dtype) noexcept {
  switch (dtype) {
    case ScalarType::Float:
    case ScalarType::Double:
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Bool:
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Int:
    case ScalarType::Long:
      return true;
    default:
      return false;
  }
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

[[noreturn]] void refuse(const GroupHalf& half, std::string_view operation, std::string_view what) {
  throw ConfigError(formatted("{}: {} of {}", half.label, operation, what));
}

bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

}  // namespace

const char* name_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::average:
      return "average";
    case ReduceOp::product:
      return "product";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::bit_and:
      return "bit_and";
    case ReduceOp::bit_or:
      return "bit_or";
    case ReduceOp::bit_xor:
      return "bit_xor";
  }
  return "(unknown)";
}

std::string terms_of(const CollectiveCall& call, std::string_view what, const at::Tensor& tensor) {
  if (!call.is_compared()) return {};
  return formatted("{}{} [{}]", what, base::dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

at::Tensor as_carried(const at::Tensor& dense) {
  return is_known_to_backends(dense.scalar_type()) ? dense : dense.reshape({-1}).view(at::kByte);
}

WireTensor::WireTensor(const CollectiveCall& call, std::string_view operation, const at::Tensor& tensor)
    : tensor_(tensor) {
  const GroupHalf& half = call.half();
  if (!tensor.defined()) refuse(half, operation, "an undefined tensor");
  if (tensor.layout() != c10::kStrided || tensor.is_nested() || tensor.is_quantized()) {
    refuse(half, operation, "a tensor that is sparse, nested or quantised; pass its parts");
  }
  if (tensor.is_meta()) refuse(half, operation, "a tensor on the meta device, which has no values");
  if (call.is_on_nccl() && !tensor.is_cuda()) {
    refuse(half, operation, formatted("a tensor on {}; this half carries cuda tensors", tensor.device().str()));
  }
  dense_ = tensor.detach();
  if (call.is_on_gloo() && !tensor.is_cpu()) dense_ = dense_.to(at::kCPU);
  if (!is_dense(dense_)) dense_ = dense_.resolve_conj().resolve_neg().contiguous();
  wire_ = as_carried(dense_);
}

WireTensor WireTensor::for_writing(const CollectiveCall& call, std::string_view operation, const at::Tensor& tensor) {
  WireTensor made(call, operation, tensor);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse(call.half(), operation, "a tensor whose elements share memory (expanded); pass a contiguous one");
  }
  return made;
}

void WireTensor::copy_back() const {
  if (dense_.is_alias_of(tensor_)) return;
  const at::NoGradGuard no_grad;
  tensor_.detach().copy_(dense_);
}

WireReduction wire_reduction(const GroupHalf& half, std::string_view operation, const at::Tensor& dense, ReduceOp op) {
  const ScalarType dtype = dense.scalar_type();
  const base::NumberKind kind = base::number_kind(dtype);
  const auto refuse_op = [&](std::string_view allowed) {
    refuse(half, operation, formatted("{} with {}, which takes {}", base::dtype_name(dtype), name_of(op), allowed));
  };
  if (is_bitwise(op) && kind != base::NumberKind::integer && kind != base::NumberKind::boolean) {
    refuse_op("integers and bool");
  }
  if (op == ReduceOp::average) {
    if (kind != base::NumberKind::real && kind != base::NumberKind::complex) refuse_op("floating-point and complex");
    op = ReduceOp::sum;
  }
  if (kind == base::NumberKind::complex) {
    if (op != ReduceOp::sum) refuse_op("numbers that have an order or are real");
    if (dtype == ScalarType::ComplexHalf) return {at::Tensor(), op};
    return {at::view_as_real(dense), op};
  }
  if (!is_known_to_backends(dtype)) return {at::Tensor(), op};
  if (kind == base::NumberKind::boolean) {
    // As bytes a sum of bools would be 2, which is no bool.
    if (op == ReduceOp::sum) op = ReduceOp::max;
    if (op == ReduceOp::product) op = ReduceOp::min;
    return {dense.view(at::kByte), op};
  }
  return {dense, op};
}

}  // namespace dbg::distributed
