// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A caller's tensor as a backend can carry it: dense, on the backend's device, of a dtype it knows; and the way back.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "dbg/reduce_op.h"
#include "distributed/collective_call.h"

namespace dbg::distributed {

/// What is on the wire in place of a tensor.
///
/// Dense in, copied back: gloo takes a tensor's first bytes for all of it, so that a broadcast into a strided one would
/// overwrite its neighbours. A dtype that gloo does not know (int16, complex, float8, uint16 ...) travels as bytes.
class WireTensor {
 public:
  /// Throws: ConfigError for what no backend could carry: undefined, sparse, quantised, without data (meta), on a
  /// device that is not the backend's; `operation` is for the message.
  WireTensor(const CollectiveCall& call, std::string_view operation, const at::Tensor& tensor);

  /// Throws: ConfigError when elements of `tensor` share memory, so that nothing can be written into it.
  static WireTensor for_writing(const CollectiveCall& call, std::string_view operation, const at::Tensor& tensor);

  /// The tensor's values in row-major order, of its own dtype; the tensor itself where it is so already.
  const at::Tensor& dense() const noexcept { return dense_; }
  /// The same memory as it is handed to the backend.
  const at::Tensor& wire() const noexcept { return wire_; }

  /// Writes `dense()` into the caller's tensor where that is another one.
  void copy_back() const;

 private:
  at::Tensor tensor_;
  at::Tensor dense_;
  at::Tensor wire_;
};

/// The memory of `dense`, which is contiguous, as a tensor of a dtype that the backends know: itself or its bytes.
at::Tensor as_carried(const at::Tensor& dense);

/// `sum`.
const char* name_of(ReduceOp op) noexcept;

/// What the members of a comparing group have to pass alike, in words: `(sum) float32 [2, 3]`, `what` being what stands
/// in the brackets. Empty where nothing is compared.
std::string terms_of(const CollectiveCall& call, std::string_view what, const at::Tensor& tensor);

/// How a reduction is put to the backend.
struct WireReduction {
  at::Tensor wire;  ///< the memory of the dense tensor, of a dtype whose arithmetic the backend has
  ReduceOp op;      ///< never `average`
};

/// Throws: ConfigError where `op` has no meaning for the dtype; CommError(unsupported)'s cause is left to the caller:
/// `wire` is undefined where no backend adds such elements (int16, float8 ...).
WireReduction wire_reduction(const GroupHalf& half, std::string_view operation, const at::Tensor& dense, ReduceOp op);

}  // namespace dbg::distributed
