// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The values of the filter language and what its operators do with them: Python's answers, without Python's exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "dbg/tags.h"

namespace dbg::filter {

/// Wide enough for the exact sum, difference and product of any two 64-bit integers.
__extension__ using Integer = __int128;

/// `undefined` is the result of what Python refuses to do (`None + 1`): false wherever it is asked.
/// `matched` is what `search` and `match` give when they find something.
enum class Kind : std::uint8_t { undefined, none, boolean, integer, real, text, tuple, list, set, matched };

/// A borrowed value: texts and items lie in the tags, in the program, or in a Scratch.
struct Value {
  struct Text {
    const char* data;
    std::size_t size;
  };
  struct Items {
    const Value* data;
    std::size_t size;
  };

  Kind kind = Kind::none;
  union {
    bool boolean;
    Integer integer = 0;
    double real;
    Text text;
    Items items;  // no undefined inside; a set's are unequal to each other
  };

  static Value of_kind(Kind kind) noexcept;
  static Value of(bool value) noexcept;
  static Value of(Integer value) noexcept;
  static Value of(double value) noexcept;
  static Value of(std::string_view value) noexcept;
  static Value of(Kind kind, const Value* items, std::size_t size) noexcept;
  static Value of(TagView tag) noexcept;

  bool is(Kind other) const noexcept { return kind == other; }
  bool is_sequence() const noexcept { return kind == Kind::tuple || kind == Kind::list; }
  std::string_view view() const noexcept { return {text.data, text.size}; }
  const Value* begin() const noexcept { return items.data; }
  const Value* end() const noexcept { return items.data + items.size; }
};

/// Python's bool is an int.
inline bool is_integral(const Value& value) noexcept {
  return value.kind == Kind::integer || value.kind == Kind::boolean;
}

/// Of an integral value.
inline Integer integer_of(const Value& value) noexcept {
  return value.kind == Kind::boolean ? Integer{value.boolean} : value.integer;
}
static_assert(std::is_trivially_copyable_v<Value> && std::is_trivially_destructible_v<Value>);

/// Where an evaluation puts the texts and tuples that it builds; all go at once. Small ones cost no allocation.
/// Threads: one thread at a time.
class Scratch {
 public:
  Scratch() noexcept = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Room for `count` of each; nullptr when memory or the bound on one evaluation (1 MiB) is at its end.
  char* bytes(std::size_t count) noexcept { return static_cast<char*>(take(count)); }
  Value* values(std::size_t count) noexcept {
    return count <= kMost / sizeof(Value) ? static_cast<Value*>(take(count * sizeof(Value))) : nullptr;
  }

 private:
  struct Chunk {
    Chunk* next;
  };
  static constexpr std::size_t kMost = std::size_t{1} << 20;
  static constexpr std::size_t kInline = 512;

  void* take(std::size_t size) noexcept;

  alignas(Value) unsigned char inline_[kInline];
  std::size_t inline_used_ = 0;
  std::size_t heap_used_ = 0;
  Chunk* chunks_ = nullptr;
};

enum class Compare : std::uint8_t {
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
  is,
  is_not
};
enum class Arithmetic : std::uint8_t { add, subtract, multiply, floor_divide, modulo };

// Each of these gives `undefined` where Python raises, and for an operand that is undefined itself.

bool truth(const Value& value) noexcept;
/// Python's `==`; never undefined. (nan equals nothing, not even itself inside a tuple.)
bool equal(const Value& a, const Value& b) noexcept;
/// One link of a comparison.
Value compare(Compare op, const Value& a, const Value& b) noexcept;
/// Results above 64 KiB of text or 4096 items, and integers beyond 128 bits, are undefined too.
Value arithmetic(Arithmetic op, const Value& a, const Value& b, Scratch& scratch) noexcept;
Value negated(const Value& value) noexcept;
Value plus(const Value& value) noexcept;
Value length(const Value& value) noexcept;
Value item_at(const Value& sequence, const Value& index) noexcept;
/// A bound that was left out is None.
Value slice(const Value& sequence, const Value& start, const Value& stop, const Value& step, Scratch& scratch) noexcept;
/// Makes a set of `count` values: equal ones once, the first kept. Undefined when one can't be hashed.
/// `items` is reordered.
Value make_set(Value* items, std::size_t count) noexcept;

/// `text.startswith(affix)` and `text.endswith(affix)`: affix is a text or a tuple of texts.
Value starts_with(const Value& text, const Value& affix) noexcept;
Value ends_with(const Value& text, const Value& affix) noexcept;

/// The value as a message shows it: `None`, `3`, `'attn'`, `a tuple`.
std::string shown(const Value& value);

}  // namespace dbg::filter
