// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Truth, equality, order and membership of filter values; their storage.
#include "dump/filter_value.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "dump/filter_error.h"
#include "dump/filter_utf8.h"

namespace dbg::filter {
namespace {

constexpr std::size_t kShownText = 40;  // code points

enum class Order { less, equal, greater, unordered };

bool is_number(const Value& value) noexcept {
  return is_integral(value) || value.kind == Kind::real;
}

template <class T>
Order order_of(const T& a, const T& b) noexcept {
  return a < b ? Order::less : b < a ? Order::greater : Order::equal;
}

// Exact, as Python's: neither side is rounded to the other's type.
Order order_of_mixed(Integer a, double b) noexcept {
  if (std::isnan(b)) return Order::unordered;
  constexpr double kLimit = 0x1p127;  // what an Integer holds lies in [-kLimit, kLimit)
  if (b >= kLimit) return Order::less;
  if (b < -kLimit) return Order::greater;
  const double whole = std::floor(b);
  const Order order = order_of(a, static_cast<Integer>(whole));
  return order == Order::equal && b > whole ? Order::less : order;
}

Order reversed(Order order) noexcept {
  return order == Order::less ? Order::greater : order == Order::greater ? Order::less : order;
}

Order order_of_numbers(const Value& a, const Value& b) noexcept {
  if (is_integral(a)) {
    return is_integral(b) ? order_of(integer_of(a), integer_of(b)) : order_of_mixed(integer_of(a), b.real);
  }
  if (is_integral(b)) return reversed(order_of_mixed(integer_of(b), a.real));
  if (std::isnan(a.real) || std::isnan(b.real)) return Order::unordered;
  return order_of(a.real, b.real);
}

bool holds(Compare op, Order order) noexcept {
  switch (op) {
    case Compare::less:
      return order == Order::less;
    case Compare::less_equal:
      return order == Order::less || order == Order::equal;
    case Compare::greater:
      return order == Order::greater;
    case Compare::greater_equal:
      return order == Order::greater || order == Order::equal;
    default:
      return false;
  }
}

bool has_item(const Value& items, const Value& value) noexcept {
  for (const Value& item : items) {
    if (equal(item, value)) return true;
  }
  return false;
}

bool is_subset(const Value& a, const Value& b) noexcept {
  for (const Value& item : a) {
    if (!has_item(b, item)) return false;
  }
  return true;
}

bool is_hashable(const Value& value) noexcept {
  if (value.kind == Kind::list || value.kind == Kind::set) return false;
  if (value.kind != Kind::tuple) return true;
  for (const Value& item : value) {
    if (!is_hashable(item)) return false;
  }
  return true;
}

Value ordered(Compare op, const Value& a, const Value& b) noexcept {
  if (is_number(a) && is_number(b)) return Value::of(holds(op, order_of_numbers(a, b)));
  if (a.kind != b.kind) return Value::of_kind(Kind::undefined);
  switch (a.kind) {
    case Kind::text:
      // UTF-8 keeps the order of code points.
      return Value::of(holds(op, order_of(a.view(), b.view())));
    case Kind::tuple:
    case Kind::list: {
      const std::size_t shared = a.items.size < b.items.size ? a.items.size : b.items.size;
      for (std::size_t i = 0; i < shared; ++i) {
        if (!equal(a.items.data[i], b.items.data[i])) return ordered(op, a.items.data[i], b.items.data[i]);
      }
      return Value::of(holds(op, order_of(a.items.size, b.items.size)));
    }
    case Kind::set:
      switch (op) {
        case Compare::less:
          return Value::of(a.items.size < b.items.size && is_subset(a, b));
        case Compare::less_equal:
          return Value::of(is_subset(a, b));
        case Compare::greater:
          return Value::of(b.items.size < a.items.size && is_subset(b, a));
        default:
          return Value::of(is_subset(b, a));
      }
    default:
      return Value::of_kind(Kind::undefined);
  }
}

Value membership(const Value& needle, const Value& haystack) noexcept {
  switch (haystack.kind) {
    case Kind::text:
      if (needle.kind != Kind::text) return Value::of_kind(Kind::undefined);
      // memmem is linear, string_view::find is not: neither text need be a friend's.
      return Value::of(needle.text.size == 0 ||
                       ::memmem(haystack.text.data, haystack.text.size, needle.text.data, needle.text.size) != nullptr);
    case Kind::tuple:
    case Kind::list:
      return Value::of(has_item(haystack, needle));
    case Kind::set:
      // A set is looked up as a frozenset, and no item can be one.
      if (needle.kind == Kind::set) return Value::of(false);
      return is_hashable(needle) ? Value::of(has_item(haystack, needle)) : Value::of_kind(Kind::undefined);
    default:
      return Value::of_kind(Kind::undefined);
  }
}

bool identical(const Value& a, const Value& b) noexcept {
  return a.kind == b.kind && (a.kind == Kind::none || (a.kind == Kind::boolean && a.boolean == b.boolean));
}

Value inverted(Value value) noexcept {
  if (value.kind == Kind::boolean) value.boolean = !value.boolean;
  return value;
}

}  // namespace

Value Value::of_kind(Kind kind) noexcept {
  Value value;
  value.kind = kind;
  return value;
}

Value Value::of(bool boolean) noexcept {
  Value value = of_kind(Kind::boolean);
  value.boolean = boolean;
  return value;
}

Value Value::of(Integer integer) noexcept {
  Value value = of_kind(Kind::integer);
  value.integer = integer;
  return value;
}

Value Value::of(double real) noexcept {
  Value value = of_kind(Kind::real);
  value.real = real;
  return value;
}

Value Value::of(std::string_view text) noexcept {
  Value value = of_kind(Kind::text);
  value.text = {text.data(), text.size()};
  return value;
}

Value Value::of(Kind kind, const Value* items, std::size_t size) noexcept {
  Value value = of_kind(kind);
  value.items = {items, size};
  return value;
}

Value Value::of(TagView tag) noexcept {
  switch (tag.kind()) {
    case TagKind::none:
      break;
    case TagKind::boolean:
      return of(tag.boolean());
    case TagKind::integer:
      return of(Integer{tag.integer()});
    case TagKind::real:
      return of(tag.real());
    case TagKind::text:
      return of(tag.text());
  }
  return {};
}

Scratch::~Scratch() {
  while (chunks_ != nullptr) {
    Chunk* const next = chunks_->next;
    std::free(chunks_);
    chunks_ = next;
  }
}

void* Scratch::take(std::size_t size) noexcept {
  if (size > kMost) return nullptr;
  size = (size + alignof(Value) - 1) / alignof(Value) * alignof(Value);
  if (size <= kInline - inline_used_) {
    void* const place = inline_ + inline_used_;
    inline_used_ += size;
    return place;
  }
  constexpr std::size_t kHead = (sizeof(Chunk) + alignof(Value) - 1) / alignof(Value) * alignof(Value);
  if (size > kMost - heap_used_) return nullptr;
  void* const raw = std::malloc(kHead + size);
  if (raw == nullptr) return nullptr;
  heap_used_ += size;
  chunks_ = ::new (raw) Chunk{chunks_};
  return static_cast<unsigned char*>(raw) + kHead;
}

bool truth(const Value& value) noexcept {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean;
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0;
    case Kind::text:
      return value.text.size != 0;
    case Kind::tuple:
    case Kind::list:
    case Kind::set:
      return value.items.size != 0;
    case Kind::matched:
      return true;
  }
  return false;
}

bool equal(const Value& a, const Value& b) noexcept {
  if (is_number(a) && is_number(b)) return order_of_numbers(a, b) == Order::equal;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::none:
      return true;
    case Kind::text:
      return a.view() == b.view();
    case Kind::tuple:
    case Kind::list:
      if (a.items.size != b.items.size) return false;
      for (std::size_t i = 0; i < a.items.size; ++i) {
        if (!equal(a.items.data[i], b.items.data[i])) return false;
      }
      return true;
    case Kind::set:
      return a.items.size == b.items.size && is_subset(a, b);
    default:
      return false;  // two match objects are never the same one
  }
}

Value compare(Compare op, const Value& a, const Value& b) noexcept {
  if (a.kind == Kind::undefined || b.kind == Kind::undefined) return Value::of_kind(Kind::undefined);
  switch (op) {
    case Compare::equal:
      return Value::of(equal(a, b));
    case Compare::not_equal:
      return Value::of(!equal(a, b));
    case Compare::in:
      return membership(a, b);
    case Compare::not_in:
      return inverted(membership(a, b));
    case Compare::is:
      return Value::of(identical(a, b));
    case Compare::is_not:
      return Value::of(!identical(a, b));
    default:
      return ordered(op, a, b);
  }
}

Value make_set(Value* items, std::size_t count) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_hashable(items[i])) return Value::of_kind(Kind::undefined);
    if (!has_item(Value::of(Kind::set, items, kept), items[i])) items[kept++] = items[i];
  }
  return Value::of(Kind::set, items, kept);
}

std::string shown(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return "nothing";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean ? "True" : "False";
    case Kind::integer:
      if (value.integer != static_cast<std::int64_t>(value.integer)) return "an integer beyond 64 bits";
      return python_text(static_cast<std::int64_t>(value.integer));
    case Kind::real:
      return python_text(value.real);
    case Kind::text: {
      const std::string_view head = clipped(value.view(), kShownText);
      std::string shown(1, '\'');
      shown += head;
      shown += head.size() < value.text.size ? "...'" : "'";
      return shown;
    }
    case Kind::tuple:
      return "a tuple";
    case Kind::list:
      return "a list";
    case Kind::set:
      return "a set";
    case Kind::matched:
      return "a match";
  }
  return {};
}

}  // namespace dbg::filter
