// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Python's pickle format, writing half: single opcodes, and whole values made of plain containers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/read_limits.h"

namespace dbg::codec {

/// Builds one pickle, opcode by opcode. The caller keeps the stack discipline; `finish` ends the pickle.
///
/// Every opcode below but for `bytes` is in protocol 2, which is all that default torch.load takes.
/// Threads: one thread at a time.
class PickleWriter {
 public:
  explicit PickleWriter(int protocol = 2);

  void none() { put('N'); }
  void boolean(bool value) { put(value ? '\x88' : '\x89'); }
  void integer(std::int64_t value);
  void unsigned_integer(std::uint64_t value);
  void real(double value);
  void complex(double real_part, double imaginary_part);
  /// `torch.device`; `index` is negative where there is none.
  void device(std::string_view type, std::int64_t index);

  /// Text. Bytes that are not UTF-8 become the lone surrogates U+DC80..U+DCFF, one a byte, as Python's own
  /// `surrogateescape` has it: torch.load reads them, `s.encode("utf-8", "surrogateescape")` gives the bytes back, and
  /// no valid text can be mistaken for them.
  /// Throws: ConfigError when it takes more than 4 GiB, which the format can't say.
  void text(std::string_view value);

  /// Python's `bytes`. Only for protocols from 3 on (4 where it is longer than 4 GiB): default torch.load refuses it.
  void bytes(std::string_view value);

  void empty_list() { put(']'); }
  void empty_dict() { put('}'); }
  void empty_tuple() { put(')'); }
  void mark() { put('('); }
  /// Appends what stands above the mark to the list below it.
  void append_to_list() { put('e'); }
  /// Adds what stands above the mark, key before value, to the dict below it.
  void add_to_dict() { put('u'); }
  /// Makes what stands above the mark a tuple.
  void tuple_of_marked() { put('t'); }
  /// Makes the topmost `count` (1 to 3) values a tuple.
  void tuple_of_last(int count) { put(static_cast<char>('\x85' + count - 1)); }
  void integer_tuple(const std::int64_t* values, std::size_t count);

  /// Refers to a Python function or class. Repeated ones are short.
  void global(std::string_view module, std::string_view name);
  /// Calls the function below the argument tuple on top.
  void reduce() { put('R'); }
  /// Replaces the value on top by the object that the reader knows under it.
  void persistent_id() { put('Q'); }

  /// Ends the pickle and returns its bytes; the writer is then spent.
  std::string finish();

 private:
  void put(char byte) { bytes_.push_back(byte); }
  void put_little_endian(std::uint64_t value, int size);

  struct Span {
    std::size_t offset;
    std::size_t size;
  };

  std::string bytes_;
  // Where in bytes_ the "module\nname\n" of each global stands; the position in this list is its memo index.
  std::vector<Span> globals_;
};

/// Writes the opcodes that build a tensor: how is up to the format around the pickle.
using TensorEmitter = std::function<void(PickleWriter&, const at::Tensor&)>;

/// Containers nested deeper than this are refused; a list that contains itself is found this way.
inline constexpr int kMaxDepth = 100;
/// A value that weighs more than this is refused: dbg's reader would stop at it. What is held back is for globals,
/// which take more opcodes where they are first met, and for the archive's own entries.
inline constexpr std::size_t kMaxWeight = ReadLimits{}.max_items - 1000;

/// Writes `value`: None, bool, int, float, complex, text, devices, tensors, and lists, tuples, dicts of those (dicts
/// keyed by bool, int, float, complex or text, in insertion order; typed lists and dicts as plain ones; a named tuple
/// as a plain tuple; concrete symbolic integers as what they stand for).
///
/// Complex numbers and devices need a global each (`complex`, `torch.device`); default torch.load allows both.
/// `weight_beside`: what the caller writes around it weighs (see weight_of), for a reader's limit is on the whole.
/// Throws: ConfigError with the text of `refusal_of` for anything else; and what `emit_tensor` throws.
void write_value(PickleWriter& out, const c10::IValue& value, const TensorEmitter& emit_tensor,
                 std::size_t weight_beside = 0);

/// What reading `value` costs of ReadLimits::max_items, at most: opcodes, entries of the value, entries of the archive,
/// counted at each place where a shared one stands. A number or text weighs 2, a complex number 6, a matrix 28.
std::size_t weight_of(const c10::IValue& value);

/// Why `value` can't be written, and where in it: `['cache'][2]: a tensor on the meta device, which has no values`;
/// nullopt when it can.
///
/// Refused besides tensors without readable bytes (see refusal_of_tensor): streams, generators, storages, objects,
/// enums, futures, capsules, Python objects; dict keys that are tensors or devices; what is nested too deep or too
/// large.
std::optional<std::string> refusal_of(const c10::IValue& value);

}  // namespace dbg::codec
