// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The allow-list: every global name that the pickle reader gives a meaning to.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "codec/dtype_names.h"
#include "codec/pickle_graph.h"

namespace dbg::codec {
namespace {

struct KnownGlobal {
  std::string_view module;
  std::string_view name;
  PickleRole role;
};

// `__builtin__` is what protocol 2 calls `builtins`.
constexpr std::array<KnownGlobal, 26> known_globals{{
    {"collections", "OrderedDict", PickleRole::ordered_dict},
    {"torch", "Size", PickleRole::size},
    {"builtins", "complex", PickleRole::complex},
    {"__builtin__", "complex", PickleRole::complex},
    {"torch", "device", PickleRole::device},
    {"torch.serialization", "_get_layout", PickleRole::layout},
    {"torch", "UntypedStorage", PickleRole::storage_class},
    {"torch.storage", "UntypedStorage", PickleRole::storage_class},
    {"torch", "Tensor", PickleRole::plain_tensor_class},
    {"torch.nn.parameter", "Parameter", PickleRole::plain_tensor_class},
    {"_codecs", "encode", PickleRole::bytes_maker},
    {"builtins", "bytes", PickleRole::bytes_maker},
    {"__builtin__", "bytes", PickleRole::bytes_maker},
    {"builtins", "bytearray", PickleRole::bytes_maker},
    {"__builtin__", "bytearray", PickleRole::bytes_maker},
    {"builtins", "set", PickleRole::set_maker},
    {"__builtin__", "set", PickleRole::set_maker},
    {"builtins", "frozenset", PickleRole::set_maker},
    {"__builtin__", "frozenset", PickleRole::set_maker},
    {"torch._utils", "_rebuild_tensor_v2", PickleRole::rebuild_tensor_v2},
    {"torch._utils", "_rebuild_tensor_v3", PickleRole::rebuild_tensor_v3},
    {"torch._utils", "_rebuild_parameter", PickleRole::rebuild_parameter},
    {"torch._utils", "_rebuild_parameter_with_state", PickleRole::rebuild_parameter_with_state},
    {"torch._utils", "_rebuild_sparse_tensor", PickleRole::rebuild_sparse},
    {"torch._tensor", "_rebuild_from_type_v2", PickleRole::rebuild_from_type},
    {"torch.storage", "_load_from_bytes", PickleRole::load_from_bytes},
}};

struct KnownDtype {
  std::string_view python;
  std::string_view torch_name;
  std::string_view storage_class;
};

constexpr std::array<KnownDtype, 32> known_dtypes{{
    {"float64", "Double", "DoubleStorage"},
    {"float32", "Float", "FloatStorage"},
    {"float16", "Half", "HalfStorage"},
    {"bfloat16", "BFloat16", "BFloat16Storage"},
    {"int64", "Long", "LongStorage"},
    {"int32", "Int", "IntStorage"},
    {"int16", "Short", "ShortStorage"},
    {"int8", "Char", "CharStorage"},
    {"uint8", "Byte", "ByteStorage"},
    {"bool", "Bool", "BoolStorage"},
    {"complex128", "ComplexDouble", "ComplexDoubleStorage"},
    {"complex64", "ComplexFloat", "ComplexFloatStorage"},
    {"complex32", "ComplexHalf", ""},
    {"uint16", "UInt16", ""},
    {"uint32", "UInt32", ""},
    {"uint64", "UInt64", ""},
    {"float8_e5m2", "Float8_e5m2", ""},
    {"float8_e4m3fn", "Float8_e4m3fn", ""},
    {"float8_e5m2fnuz", "Float8_e5m2fnuz", ""},
    {"float8_e4m3fnuz", "Float8_e4m3fnuz", ""},
    {"float8_e8m0fnu", "Float8_e8m0fnu", ""},
    {"float4_e2m1fn_x2", "Float4_e2m1fn_x2", ""},
    {"bits8", "Bits8", ""},
    {"bits16", "Bits16", ""},
    {"bits1x8", "Bits1x8", ""},
    {"bits2x4", "Bits2x4", ""},
    {"bits4x2", "Bits4x2", ""},
    {"qint8", "QInt8", "QInt8Storage"},
    {"qint32", "QInt32", "QInt32Storage"},
    {"quint8", "QUInt8", "QUInt8Storage"},
    {"quint4x2", "QUInt4x2", "QUInt4x2Storage"},
    {"quint2x4", "QUInt2x4", "QUInt2x4Storage"},
}};

}  // namespace

PickleGlobal find_pickle_global(std::string_view module, std::string_view name) {
  PickleGlobal global;
  const auto known = std::find_if(known_globals.begin(), known_globals.end(), [&](const KnownGlobal& candidate) {
    return candidate.module == module && candidate.name == name;
  });
  if (known != known_globals.end()) {
    global.role = known->role;
    return global;
  }
  if (module != "torch" || name.empty()) return global;
  for (const KnownDtype& candidate : known_dtypes) {
    const bool is_class = name == candidate.storage_class;
    if (!is_class && name != candidate.python) continue;
    if (const auto dtype = dtype_called(candidate.torch_name)) {
      global.role = is_class ? PickleRole::storage_class : PickleRole::dtype;
      global.dtype = *dtype;
    }
    break;
  }
  return global;
}

}  // namespace dbg::codec
