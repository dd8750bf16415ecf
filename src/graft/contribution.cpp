// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Decides what can be sent.
#include "graft/contribution.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/dtype.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "codec/pickle_writer.h"
#include "codec/tensor_bytes.h"

namespace dbg::graft {
namespace {

at::ScalarType plain_dtype_of_width(std::int64_t bytes) {
  switch (bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return at::kComplexDouble;
  }
}

}  // namespace

Contribution contribution_of(const c10::IValue& value, const c10::IValue* extras, GraftPlace place) {
  Contribution made;
  made.place = std::move(place);
  if (extras != nullptr) made.extras = *extras;
  if (!value.isTensor()) {
    made.reason = formatted(
        "a value of type {}, which is no tensor; narrow the filter, or dump a tensor under this "
        "name",
        value.tagKind());
    return made;
  }
  const at::Tensor& tensor = value.toTensor();
  if (auto refusal = codec::refusal_of_tensor(tensor)) {
    made.reason = *std::move(refusal);
    return made;
  }
  if (tensor.layout() != c10::kStrided) {
    made.reason = formatted("a tensor of layout {}; dump its parts", c10::str(tensor.layout()));
    return made;
  }
  if (const auto refusal = codec::refusal_of(made.extras)) {
    made.reason = formatted("extras that can't be sent: {}", *refusal);
    return made;
  }
  const auto cause = base::run_fenced([&] { made.tensor = tensor.is_cpu() ? tensor.detach() : dense_on_host(tensor); });
  if (cause) {
    made.reason = formatted("a tensor that can't be copied to the host: {}", *cause);
    return made;
  }
  made.state = ContributionState::value;
  return made;
}

at::Tensor dense_on_host(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor dense = tensor.detach();
  if (dense._is_zerotensor()) return at::zeros(dense.sizes(), dense.options().device(at::kCPU));
  if (dense.is_conj() || dense.is_neg()) dense = dense.resolve_conj().resolve_neg();
  if (!dense.is_contiguous()) {
    // Young dtypes have few kernels: their bits are copied as those of a plain one.
    dense = dense.view(plain_dtype_of_width(dense.element_size())).contiguous().view(tensor.scalar_type());
  }
  return dense.is_cpu() ? dense : dense.to(at::kCPU);
}

}  // namespace dbg::graft
