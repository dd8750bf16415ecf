// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a pickle says, as plain data: objects that refer to each other by index, nothing made or called yet.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/pickle_bytes.h"
#include "codec/read_budget.h"

namespace dbg::codec {

/// What a global name means to the reader. There is no way to give it another one.
enum class PickleRole : std::uint8_t {
  unknown,
  ordered_dict,
  size,
  complex,
  device,
  layout,
  dtype,
  storage_class,
  plain_tensor_class,
  bytes_maker,
  set_maker,
  rebuild_tensor_v2,
  rebuild_tensor_v3,
  rebuild_parameter,
  rebuild_parameter_with_state,
  rebuild_sparse,
  rebuild_from_type,
  load_from_bytes,
  tensor_metadata,
};

struct PickleSpan {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

enum class PickleKind : std::uint8_t {
  absent,
  none,
  boolean,
  integer,
  real,
  text,         // span
  bytes,        // span
  big_integer,  // span
  list,         // sequence
  tuple,        // sequence
  dict,         // sequence of key, value, key, value ...
  set,          // contents are not kept
  global,       // global
  object,       // global that it is an instance of; contents are not kept
  storage,      // storage
  call,         // call
  unknown_id,   // a persistent id that is no storage
};

/// A value, or the place of one in the graph.
struct PickleRef {
  PickleKind kind = PickleKind::absent;
  union {
    std::int64_t integer = 0;
    double real;
    std::size_t index;
  };

  static PickleRef of(PickleKind kind, std::size_t index = 0) {
    PickleRef ref;
    ref.kind = kind;
    ref.index = index;
    return ref;
  }
  static PickleRef of_integer(std::int64_t value) {
    PickleRef ref;
    ref.kind = PickleKind::integer;
    ref.integer = value;
    return ref;
  }
};

struct PickleGlobal {
  PickleRole role = PickleRole::unknown;
  /// Of a dtype or a storage class; Undefined for an untyped storage.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  PickleSpan module;
  PickleSpan name;
};

/// A function that the pickle wants called, with its arguments.
struct PickleCall {
  PickleRole role;
  std::size_t arguments;  // sequence
  std::uint64_t offset;   // of the opcode
};

struct PickleStorage {
  PickleSpan key;
  c10::ScalarType dtype;  // Undefined: untyped
  std::int64_t elements;
  std::uint64_t offset;  // of the opcode
};

struct PickleGraph {
  explicit PickleGraph(PickleBytes&& pickle) : bytes(std::move(pickle)) {}

  PickleBytes bytes;
  std::vector<PickleSpan> spans;
  std::vector<std::vector<PickleRef>> sequences;
  std::vector<PickleGlobal> globals;
  std::vector<PickleCall> calls;
  std::vector<PickleStorage> storages;
  PickleRef root;
  /// One past the pickle's last byte, from its beginning.
  std::uint64_t size_bytes = 0;

  std::string_view text_of(PickleSpan span) const { return bytes.view(span.offset, span.size); }
  std::string name_of(const PickleGlobal& global) const;
};

/// Runs the opcodes of one pickle of protocols 2 to 5. Creates nothing but the graph.
/// Throws: IoError with place and cause for bytes that are no such pickle, are cut, or exceed the budget.
PickleGraph read_pickle_graph(PickleBytes bytes, ReadBudget& budget);

/// The meaning of a global name, and its dtype where it has one.
PickleGlobal find_pickle_global(std::string_view module, std::string_view name);

}  // namespace dbg::codec
