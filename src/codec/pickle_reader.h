// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Python's pickle format, reading half: an allow-list that turns a pickle into a c10::IValue and never calls anything.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "codec/pickle_graph.h"
#include "codec/read_limits.h"

namespace dbg::codec {

/// Bytes of tensors, with what the pickle said about their dtype (Undefined: untyped).
struct PickledStorage {
  c10::Storage storage;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
};

/// What a pickle holds: a value, or, inside a larger pickle, a bare storage.
using PickledValue = std::variant<c10::IValue, PickledStorage>;

/// Where a pickle's tensors find their bytes: the format around the pickle.
class PickleEnvironment {
 public:
  virtual ~PickleEnvironment();

  /// The storage under `key`, the same object each time, of at least `size_bytes` bytes and in this machine's byte
  /// order for elements of `dtype`.
  /// Throws: IoError.
  virtual c10::Storage storage(std::string_view key, std::uint64_t size_bytes, c10::ScalarType dtype) = 0;

  /// Reads a whole torch.save stream that stands as bytes in the pickle.
  /// Throws: IoError.
  virtual PickledValue stream(std::string_view bytes) = 0;
};

/// Makes the value of `graph`. What a c10::IValue can't hold is left out and listed in `refusals` (None stands for it
/// in a list or tuple, so that the others keep their places).
///
/// - None, bool, int, float, complex, str, list, tuple (torch.Size too), dict (OrderedDict too, keys
///   bool, int, float, complex or str), torch.device, tensors (Parameters too, sparse ones of all layouts).
/// - SGLang's and vLLM's TensorMetadata: a named tuple of that name, (device type, dtype as Python has it, sizes).
/// - Tensors are on the CPU, of the strides they had; those that shared a storage share it. requires_grad, hooks and
///   Python attributes are not restored: a value that was read is data. Conjugate and negative views are resolved.
/// - Lists, tuples and dicts that stood in several places become equal ones, one a place.
/// - Text that carries bytes as Python's `surrogateescape` does (U+DC80..U+DCFF) gets its bytes back.
/// - Refused: bytes, sets, integers beyond 64 bits (signed), dict keys of other kinds, other lone surrogates, dtypes,
///   layouts, classes, bare storages, quantised tensors, a container that holds itself, objects of all other classes
///   (named tuples are some), dicts whose keys collide so much that their table would break `limits.max_items`.
///
/// Throws: IoError with place and cause for what no writer would have written, and where the root itself is refused.
PickledValue make_pickled_value(const PickleGraph& graph, PickleEnvironment& environment, const ReadLimits& limits,
                                ReadBudget& budget, std::vector<Refusal>* refusals);

}  // namespace dbg::codec
