// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// From tensors of every kind to dense host bytes.
#include "codec/tensor_bytes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/dtype.h"
#include "base/formatted.h"
#include "base/tensor_blocks.h"
#include "codec/tensor_rebuild.h"

namespace dbg::codec {
namespace {

struct LegacyStorage {
  c10::ScalarType dtype;
  std::string_view storage;
};

// The dtypes that torch/storage.py maps to a storage class. It says of itself that none will be added.
constexpr std::array<LegacyStorage, 12> kLegacyStorages{{
    {c10::ScalarType::Float, "FloatStorage"},
    {c10::ScalarType::BFloat16, "BFloat16Storage"},
    {c10::ScalarType::Half, "HalfStorage"},
    {c10::ScalarType::Double, "DoubleStorage"},
    {c10::ScalarType::Long, "LongStorage"},
    {c10::ScalarType::Int, "IntStorage"},
    {c10::ScalarType::Short, "ShortStorage"},
    {c10::ScalarType::Char, "CharStorage"},
    {c10::ScalarType::Byte, "ByteStorage"},
    {c10::ScalarType::Bool, "BoolStorage"},
    {c10::ScalarType::ComplexFloat, "ComplexFloatStorage"},
    {c10::ScalarType::ComplexDouble, "ComplexDoubleStorage"},
}};

// A dtype of the same width that every copy kernel knows: fp8, fp4 and bits dtypes have few kernels of their own.
c10::ScalarType plain_dtype_of_width(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return c10::ScalarType::Byte;
    case 2:
      return c10::ScalarType::Short;
    case 4:
      return c10::ScalarType::Int;
    case 8:
      return c10::ScalarType::Long;
    default:
      return c10::ScalarType::ComplexDouble;
  }
}

std::optional<std::string> refusal_of_strided(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_symbolic_sizes_strides()) return "a tensor with symbolic sizes, which stands for no values yet";
  if (tensor._is_zerotensor()) return std::nullopt;
  if (!impl->has_storage()) return "a tensor without storage";
  const std::int64_t reach = base::reach_bytes(tensor);
  if (reach == base::kReachesNowhere) {
    return formatted("a tensor whose elements lie in no storage: sizes [{}], strides [{}], offset {}",
                     fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", "), tensor.storage_offset());
  }
  const auto needed = static_cast<std::size_t>(reach);
  const std::size_t held = tensor.storage().nbytes();
  if (held < needed) {
    return formatted(
        "a tensor whose storage holds {} bytes where its sizes need {}: the storage was freed or shrunk under it", held,
        needed);
  }
  if (needed > 0 && tensor.storage().data() == nullptr) return "a tensor whose storage has no memory (a fake tensor?)";
  const base::NumberKind kind = base::number_kind(tensor.scalar_type());
  if (tensor.is_neg() && (kind == base::NumberKind::boolean || kind == base::NumberKind::opaque)) {
    return formatted("a negative view of {}, which has no sign to turn", base::dtype_name(tensor.scalar_type()));
  }
  return std::nullopt;
}

}  // namespace

std::vector<at::Tensor> sparse_parts(const at::Tensor& tensor) {
  const c10::Layout layout = tensor.layout();
  if (layout == c10::kSparse) return {tensor._indices(), tensor._values()};
  if (layout == c10::kSparseCsr || layout == c10::kSparseBsr) {
    return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
  }
  return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
}

std::optional<DtypeName> dtype_name(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Undefined || dtype == c10::ScalarType::NumOptions || c10::isQIntType(dtype)) {
    return std::nullopt;
  }
  const auto legacy = std::find_if(kLegacyStorages.begin(), kLegacyStorages.end(),
                                   [dtype](const LegacyStorage& known) { return known.dtype == dtype; });
  return DtypeName{base::dtype_name(dtype), legacy != kLegacyStorages.end() ? legacy->storage : std::string_view()};
}

at::Tensor negated(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  const base::NumberKind kind = base::number_kind(dtype);
  // Modulo 2^bits, so that the sign of the type does not matter.
  if (kind == base::NumberKind::integer) {
    return at::neg(tensor.view(plain_dtype_of_width(tensor.element_size()))).view(dtype);
  }
  // Each fp8 number is a float, and so is its negative.
  if (kind == base::NumberKind::real && tensor.element_size() == 1) return at::neg(tensor.to(at::kFloat)).to(dtype);
  return at::neg(tensor);
}

std::optional<std::string> refusal_of_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  const c10::DispatchKeySet keys = tensor.key_set();
  if (keys.has(c10::DispatchKey::Python)) return "a tensor of a Python class that stands for another tensor";
  if (base::is_wrapper(tensor)) return "a tensor that a functorch transform (vmap, grad, functionalize) has wrapped";
  if (tensor.is_meta()) return "a tensor on the meta device, which has no values";
  if (tensor.is_quantized()) {
    return formatted("a quantised tensor ({}); dump its int_repr() or dequantize() instead",
                     c10::toString(tensor.scalar_type()));
  }
  if (tensor.is_nested()) return "a nested tensor; dump its parts (unbind()) instead";
  if (!dtype_name(tensor.scalar_type())) {
    return formatted("a tensor of dtype {}, which torch.load does not know", c10::toString(tensor.scalar_type()));
  }
  if (!sparse_layout_name(tensor.layout()).empty()) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& part : sparse_parts(tensor)) {
      if (const std::optional<std::string> reason = refusal_of_tensor(part))
        return "a sparse tensor made of " + *reason;
    }
    return std::nullopt;
  }
  if (tensor.layout() != c10::kStrided) return "a tensor of an opaque layout (mkldnn?); dump its to_dense() instead";
  return refusal_of_strided(tensor);
}

TensorBytes::TensorBytes(const at::Tensor& tensor) : dtype_(tensor.scalar_type()) {
  const at::NoGradGuard no_grad;
  at::Tensor dense = tensor;
  if (dense._is_zerotensor()) dense = at::zeros(dense.sizes(), dense.options().device(at::kCPU));
  // What is repeated (expand) is written once, as torch.save does: a scalar can stand for any number of elements.
  c10::SmallVector<std::int64_t, 5> repeated;
  for (std::int64_t d = 0; tensor.numel() > 0 && d < dense.dim(); ++d) {
    if (dense.stride(d) != 0 || dense.size(d) <= 1) continue;
    repeated.push_back(d);
    dense = dense.narrow(d, 0, 1);
  }
  if (dense.is_conj()) dense = dense.resolve_conj();
  // A negative view of a negative view is the elements as they lie.
  if (dense.is_neg()) dense = negated(at::_neg_view(dense));
  if (!dense.is_cpu()) dense = dense.to(at::kCPU);
  if (!dense.is_non_overlapping_and_dense()) {
    dense = dense.detach().view(plain_dtype_of_width(dense.element_size())).contiguous();
  }
  data_ = dense.const_data_ptr();
  size_bytes_ = static_cast<std::size_t>(dense.numel()) * dense.element_size();
  sizes_.assign(dense.sizes().begin(), dense.sizes().end());
  strides_.assign(dense.strides().begin(), dense.strides().end());
  for (const std::int64_t d : repeated) {
    sizes_[static_cast<std::size_t>(d)] = tensor.size(d);
    strides_[static_cast<std::size_t>(d)] = 0;
  }
  keeps_alive_ = std::move(dense);
}

}  // namespace dbg::codec
