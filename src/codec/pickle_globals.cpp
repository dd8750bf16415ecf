// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The allow-list: every global name that the pickle reader gives a meaning to.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "base/fork_lock.h"
#include "codec/pickle_graph.h"
#include "codec/tensor_bytes.h"

namespace dbg::codec {
namespace {

struct KnownGlobal {
  std::string_view module;
  std::string_view name;
  PickleRole role;
};

// `__builtin__` is what protocol 2 calls `builtins`.
constexpr std::array<KnownGlobal, 28> known_globals{{
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
    // The named tuple by which their tensor dicts announce a tensor.
    {"sglang.srt.distributed.parallel_state", "TensorMetadata", PickleRole::tensor_metadata},
    {"vllm.distributed.parallel_state", "TensorMetadata", PickleRole::tensor_metadata},
}};

/// The names of the module `torch` that stand for a dtype or for the storage class of one.
std::map<std::string, PickleGlobal, std::less<>> make_dtype_globals() {
  std::map<std::string, PickleGlobal, std::less<>> globals;
  const auto add = [&](std::string_view name, PickleRole role, c10::ScalarType dtype) {
    PickleGlobal global;
    global.role = role;
    global.dtype = dtype;
    if (!name.empty()) globals.emplace(name, global);
  };
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (const auto name = dtype_name(dtype)) {
      add(name->python, PickleRole::dtype, dtype);
      add(name->legacy_storage, PickleRole::storage_class, dtype);
    } else if (c10::isQIntType(dtype)) {
      // Refused as tensors; the storages have to be stepped over in the older stream.
      add(c10::toString(dtype) + std::string("Storage"), PickleRole::storage_class, dtype);
    }
  }
  return globals;
}

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
  if (module != "torch") return global;
  const auto& dtype_globals = base::made_once<&make_dtype_globals>();
  const auto dtype = dtype_globals.find(name);
  if (dtype != dtype_globals.end()) global = dtype->second;
  return global;
}

}  // namespace dbg::codec
