// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic, indexing and text methods of filter values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dump/filter_utf8.h"
#include "dump/filter_value.h"

namespace dbg::filter {
namespace {

constexpr std::size_t kMostText = std::size_t{64} << 10;  // bytes
constexpr std::size_t kMostItems = 4096;

Value undefined() noexcept {
  return Value::of_kind(Kind::undefined);
}

double real_of(const Value& value) noexcept {
  return value.kind == Kind::real ? value.real : static_cast<double>(integer_of(value));
}

Value integer_arithmetic(Arithmetic op, Integer a, Integer b) noexcept {
  Integer result = 0;
  switch (op) {
    case Arithmetic::add:
      return __builtin_add_overflow(a, b, &result) ? undefined() : Value::of(result);
    case Arithmetic::subtract:
      return __builtin_sub_overflow(a, b, &result) ? undefined() : Value::of(result);
    case Arithmetic::multiply:
      return __builtin_mul_overflow(a, b, &result) ? undefined() : Value::of(result);
    case Arithmetic::floor_divide:
    case Arithmetic::modulo: {
      if (b == 0) return undefined();
      const bool floor_wanted = op == Arithmetic::floor_divide;
      if (b == -1) {  // the least integer has no counterpart
        if (!floor_wanted) return Value::of(Integer{0});
        return __builtin_sub_overflow(Integer{0}, a, &result) ? undefined() : Value::of(result);
      }
      // C++ rounds to zero, Python down: the remainder takes the divisor's sign.
      const Integer rest = a % b;
      const bool down = rest != 0 && (rest < 0) != (b < 0);
      return Value::of(floor_wanted ? a / b - (down ? 1 : 0) : rest + (down ? b : 0));
    }
  }
  return undefined();
}

Value real_arithmetic(Arithmetic op, double a, double b) noexcept {
  switch (op) {
    case Arithmetic::add:
      return Value::of(a + b);
    case Arithmetic::subtract:
      return Value::of(a - b);
    case Arithmetic::multiply:
      return Value::of(a * b);
    case Arithmetic::floor_divide:
    case Arithmetic::modulo: {
      if (b == 0) return undefined();
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest == 0) {
        rest = std::copysign(0.0, b);
      } else if ((rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      }
      if (op == Arithmetic::modulo) return Value::of(rest);
      if (quotient == 0) return Value::of(std::copysign(0.0, a / b));
      // The quotient is whole but for rounding: take the nearest whole number.
      const double whole = std::floor(quotient);
      return Value::of(quotient - whole > 0.5 ? whole + 1 : whole);
    }
  }
  return undefined();
}

Value joined(const Value& a, const Value& b, Scratch& scratch) noexcept {
  if (a.kind == Kind::text) {
    if (a.text.size + b.text.size > kMostText) return undefined();
    char* const place = scratch.bytes(a.text.size + b.text.size);
    if (place == nullptr) return undefined();
    std::copy_n(a.text.data, a.text.size, place);
    std::copy_n(b.text.data, b.text.size, place + a.text.size);
    return Value::of(std::string_view(place, a.text.size + b.text.size));
  }
  if (a.items.size + b.items.size > kMostItems) return undefined();
  Value* const place = scratch.values(a.items.size + b.items.size);
  if (place == nullptr) return undefined();
  std::copy_n(a.items.data, a.items.size, place);
  std::copy_n(b.items.data, b.items.size, place + a.items.size);
  return Value::of(a.kind, place, a.items.size + b.items.size);
}

Value repeated(const Value& sequence, Integer times, Scratch& scratch) noexcept {
  const bool is_text = sequence.kind == Kind::text;
  const std::size_t size = is_text ? sequence.text.size : sequence.items.size;
  if (times <= 0 || size == 0) {
    return is_text ? Value::of(std::string_view()) : Value::of(sequence.kind, nullptr, 0);
  }
  if (times > static_cast<Integer>((is_text ? kMostText : kMostItems) / size)) return undefined();
  const auto count = static_cast<std::size_t>(times);
  if (is_text) {
    char* const place = scratch.bytes(size * count);
    if (place == nullptr) return undefined();
    for (std::size_t i = 0; i < count; ++i) std::copy_n(sequence.text.data, size, place + i * size);
    return Value::of(std::string_view(place, size * count));
  }
  Value* const place = scratch.values(size * count);
  if (place == nullptr) return undefined();
  for (std::size_t i = 0; i < count; ++i) std::copy_n(sequence.items.data, size, place + i * size);
  return Value::of(sequence.kind, place, size * count);
}

Value set_difference(const Value& a, const Value& b, Scratch& scratch) noexcept {
  Value* const place = scratch.values(a.items.size);
  if (place == nullptr) return undefined();
  std::size_t kept = 0;
  for (const Value& item : a) {
    if (!truth(compare(Compare::in, item, b))) place[kept++] = item;
  }
  return Value::of(Kind::set, place, kept);
}

// `text % values` formats. Where nothing is to be put in, Python's answer is the text; the rest is not of the language.
Value percent_formatted(const Value& text, const Value& values) noexcept {
  const bool nothing_to_put = values.kind == Kind::list || values.kind == Kind::matched ||
                              (values.kind == Kind::tuple && values.items.size == 0);
  return nothing_to_put && text.view().find('%') == std::string_view::npos ? text : undefined();
}

// A slice bound as Python clips it to [least, most].
std::ptrdiff_t clip(Integer bound, std::ptrdiff_t size, std::ptrdiff_t least, std::ptrdiff_t most) noexcept {
  if (bound < 0) bound += size;
  return static_cast<std::ptrdiff_t>(std::clamp(bound, Integer{least}, Integer{most}));
}

std::size_t byte_at(std::string_view text, std::ptrdiff_t code_points) noexcept {
  std::size_t at = 0;
  for (; code_points > 0; --code_points) next_code_point(text, at);
  return at;
}

Value text_slice(std::string_view text, std::ptrdiff_t start, std::ptrdiff_t step, std::ptrdiff_t count,
                 Scratch& scratch) noexcept {
  if (count == 0) return Value::of(std::string_view());
  if (step == 1) {
    const std::string_view rest = text.substr(byte_at(text, start));
    return Value::of(rest.substr(0, byte_at(rest, count)));
  }
  if (text.size() > kMostText) return undefined();
  char* const place = scratch.bytes(text.size());
  if (place == nullptr) return undefined();
  // Forward from the lowest code point taken; filled from the back when the step is negative.
  const std::ptrdiff_t stride = step < 0 ? -step : step;
  std::size_t at = byte_at(text, step < 0 ? start + (count - 1) * step : start);
  std::size_t used = 0;
  for (std::ptrdiff_t taken = 0; taken < count; ++taken) {
    const std::size_t from = at;
    next_code_point(text, at);
    const std::size_t size = at - from;
    used += size;
    std::copy_n(text.data() + from, size, step < 0 ? place + (text.size() - used) : place + (used - size));
    for (std::ptrdiff_t skip = 1; skip < stride && at < text.size(); ++skip) next_code_point(text, at);
  }
  return Value::of(std::string_view(step < 0 ? place + (text.size() - used) : place, used));
}

template <class Test>
Value any_affix(const Value& text, const Value& affix, Test test) noexcept {
  if (text.kind != Kind::text) return undefined();
  if (affix.kind == Kind::text) return Value::of(test(text.view(), affix.view()));
  if (affix.kind != Kind::tuple) return undefined();
  for (const Value& item : affix) {
    if (item.kind != Kind::text) return undefined();
    if (test(text.view(), item.view())) return Value::of(true);
  }
  return Value::of(false);
}

}  // namespace

Value arithmetic(Arithmetic op, const Value& a, const Value& b, Scratch& scratch) noexcept {
  if (is_integral(a) && is_integral(b)) return integer_arithmetic(op, integer_of(a), integer_of(b));
  const bool a_is_number = is_integral(a) || a.kind == Kind::real;
  const bool b_is_number = is_integral(b) || b.kind == Kind::real;
  if (a_is_number && b_is_number) return real_arithmetic(op, real_of(a), real_of(b));
  const auto can_repeat = [](const Value& value) { return value.kind == Kind::text || value.is_sequence(); };
  switch (op) {
    case Arithmetic::add:
      return a.kind == b.kind && can_repeat(a) ? joined(a, b, scratch) : undefined();
    case Arithmetic::subtract:
      return a.kind == Kind::set && b.kind == Kind::set ? set_difference(a, b, scratch) : undefined();
    case Arithmetic::multiply:
      if (can_repeat(a) && is_integral(b)) return repeated(a, integer_of(b), scratch);
      if (can_repeat(b) && is_integral(a)) return repeated(b, integer_of(a), scratch);
      return undefined();
    case Arithmetic::modulo:
      return a.kind == Kind::text && b.kind != Kind::undefined ? percent_formatted(a, b) : undefined();
    case Arithmetic::floor_divide:
      return undefined();
  }
  return undefined();
}

Value negated(const Value& value) noexcept {
  if (is_integral(value)) return integer_arithmetic(Arithmetic::subtract, 0, integer_of(value));
  return value.kind == Kind::real ? Value::of(-value.real) : undefined();
}

Value plus(const Value& value) noexcept {
  if (is_integral(value)) return Value::of(integer_of(value));
  return value.kind == Kind::real ? value : undefined();
}

Value length(const Value& value) noexcept {
  if (value.kind == Kind::text) return Value::of(static_cast<Integer>(count_code_points(value.view())));
  if (value.is_sequence() || value.kind == Kind::set) return Value::of(static_cast<Integer>(value.items.size));
  return undefined();
}

Value item_at(const Value& sequence, const Value& index) noexcept {
  if (!is_integral(index)) return undefined();
  const Value size = length(sequence);
  if (size.kind == Kind::undefined || sequence.kind == Kind::set) return undefined();
  Integer at = integer_of(index);
  if (at < 0) at += size.integer;
  if (at < 0 || at >= size.integer) return undefined();
  const auto place = static_cast<std::ptrdiff_t>(at);
  if (sequence.kind != Kind::text) return sequence.items.data[place];
  const std::string_view rest = sequence.view().substr(byte_at(sequence.view(), place));
  return Value::of(rest.substr(0, byte_at(rest, 1)));
}

Value slice(const Value& sequence, const Value& start, const Value& stop, const Value& step,
            Scratch& scratch) noexcept {
  for (const Value* const bound : {&start, &stop, &step}) {
    if (bound->kind != Kind::none && !is_integral(*bound)) return undefined();
  }
  const Value length_value = length(sequence);
  if (length_value.kind == Kind::undefined || sequence.kind == Kind::set) return undefined();
  const auto size = static_cast<std::ptrdiff_t>(length_value.integer);
  constexpr std::ptrdiff_t kFar = std::numeric_limits<std::ptrdiff_t>::max() / 4;
  const Integer asked = step.kind == Kind::none ? Integer{1} : integer_of(step);
  if (asked == 0) return undefined();
  const auto stride = static_cast<std::ptrdiff_t>(std::clamp(asked, Integer{-kFar}, Integer{kFar}));
  const std::ptrdiff_t least = stride < 0 ? -1 : 0;
  const std::ptrdiff_t most = stride < 0 ? size - 1 : size;
  const std::ptrdiff_t first =
      start.kind == Kind::none ? (stride < 0 ? most : least) : clip(integer_of(start), size, least, most);
  const std::ptrdiff_t end =
      stop.kind == Kind::none ? (stride < 0 ? least : most) : clip(integer_of(stop), size, least, most);
  const std::ptrdiff_t span = stride < 0 ? first - end : end - first;
  const std::ptrdiff_t pace = stride < 0 ? -stride : stride;
  const std::ptrdiff_t count = span <= 0 ? 0 : (span - 1) / pace + 1;

  if (sequence.kind == Kind::text) return text_slice(sequence.view(), first, stride, count, scratch);
  if (stride == 1) return Value::of(sequence.kind, sequence.items.data + (count > 0 ? first : 0), count);
  Value* const place = scratch.values(static_cast<std::size_t>(count));
  if (place == nullptr) return undefined();
  for (std::ptrdiff_t i = 0; i < count; ++i) place[i] = sequence.items.data[first + i * stride];
  return Value::of(sequence.kind, place, static_cast<std::size_t>(count));
}

Value starts_with(const Value& text, const Value& affix) noexcept {
  return any_affix(text, affix, [](std::string_view whole, std::string_view head) {
    return whole.size() >= head.size() && whole.compare(0, head.size(), head) == 0;
  });
}

Value ends_with(const Value& text, const Value& affix) noexcept {
  return any_affix(text, affix, [](std::string_view whole, std::string_view tail) {
    return whole.size() >= tail.size() && whole.compare(whole.size() - tail.size(), tail.size(), tail) == 0;
  });
}

}  // namespace dbg::filter
