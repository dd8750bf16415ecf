// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A tensor's elements as one dense run of bytes on the host, and the names that Python has for its dtype.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/DimVector.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dbg::codec {

/// What torch.load wants to hear about a dtype.
struct DtypeName {
  /// The attribute of the module `torch`: "float32", "float8_e4m3fn", "complex32".
  std::string python;
  /// The class of the same module that old files know the storage by ("FloatStorage"); empty for younger dtypes, whose
  /// tensors are rebuilt from untyped bytes.
  std::string_view legacy_storage;
};

/// The names for `dtype`; nullopt for what is no dtype of elements.
std::optional<DtypeName> dtype_name(c10::ScalarType dtype);

/// Why `tensor`'s bytes can't be had; nullopt when they can. A sparse tensor is as readable as its parts.
///
/// Refused: undefined; without data (meta, fake, a storage that was freed under the tensor); nested, quantised and
/// opaque layouts; symbolic sizes; negative views of dtypes without a sign to turn (bool); tensors of Python classes
/// that hide another one (DTensor) and of functorch.
std::optional<std::string> refusal_of_tensor(const at::Tensor& tensor);

/// The strided tensors that make up a sparse one, in the order in which Python rebuilds it: indices and values for COO,
/// compressed indices, plain indices and values for CSR, CSC, BSR, BSC. A COO tensor is taken as it is: coalesce first.
std::vector<at::Tensor> sparse_parts(const at::Tensor& tensor);

/// The elements with their sign turned, of dtypes for which torch has no neg as well (unsigned ones, fp8).
/// Throws: c10::Error where that means nothing (bool).
at::Tensor negated(const at::Tensor& tensor);

/// The bytes of a strided tensor. Keeps alive what they lie in: the tensor itself where its elements lie densely in
/// host memory in any order (contiguous, channels-last, transposed, a dense slice of something large), else a copy.
///
/// Conjugate and negative views are resolved, views compacted; strides are kept where the elements lie densely. A
/// dimension of stride 0 (expand) keeps it: what it repeats is there once.
class TensorBytes {
 public:
  /// `tensor` is strided and not refused by refusal_of_tensor.
  /// Throws: what torch throws when it can't copy (c10::Error, out of memory). Waits for the device of a device tensor.
  explicit TensorBytes(const at::Tensor& tensor);

  const void* data() const noexcept { return data_; }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  c10::ScalarType dtype() const noexcept { return dtype_; }
  const c10::DimVector& sizes() const noexcept { return sizes_; }
  const c10::DimVector& strides() const noexcept { return strides_; }

 private:
  at::Tensor keeps_alive_;
  const void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  c10::ScalarType dtype_;
  c10::DimVector sizes_;
  c10::DimVector strides_;
};

}  // namespace dbg::codec
