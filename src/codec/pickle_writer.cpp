// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Opcodes, and the walk over a value.
#include "codec/pickle_writer.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/formatted.h"
#include "codec/tensor_bytes.h"
#include "dbg/error.h"

namespace dbg::codec {
namespace {

// The length of the UTF-8 sequence at the start of `text`; 0 when there is no valid one (overlong forms, surrogates and
// what lies beyond U+10FFFF are not).
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (at(i) & 0xC0u) == 0x80u; };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xE0 && at(1) < 0xA0) return 0;
    if (first == 0xED && at(1) >= 0xA0) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (first == 0xF0 && at(1) < 0x90) return 0;
    if (first == 0xF4 && at(1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

// Appends `text` with each byte that is not UTF-8 as the surrogate U+DC00 + byte, in three bytes.
void append_escaped(std::string& out, std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) {
    out.append(text);
    return;
  }
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length != 0) {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
      continue;
    }
    const auto byte = static_cast<unsigned char>(text.front());
    out.push_back('\xED');
    out.push_back(static_cast<char>(0xB0u | (byte >> 6)));
    out.push_back(static_cast<char>(0x80u | (byte & 0x3Fu)));
    text.remove_prefix(1);
  }
}

constexpr std::size_t kMaxTextBytes = std::numeric_limits<std::uint32_t>::max();

std::string text_too_long(std::size_t bytes) {
  return formatted("a text of {} bytes, where a pickle can say at most {}", bytes, kMaxTextBytes);
}

// How a dict's key reads in a message: bounded, on one line.
std::string key_text(const c10::IValue& key) {
  if (!key.isString()) return formatted("[{}]", fmt::streamed(key));
  constexpr std::size_t kShown = 60;
  const std::string_view whole = key.toStringView();
  std::string shown(whole.substr(0, kShown));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return formatted("['{}{}']", shown, whole.size() > kShown ? "..." : "");
}

// A newer torch has an IValue of its own for integers from 2^63 on; older ones can't hold them.
template <class Value>
std::optional<std::uint64_t> unsigned_of(const Value& value) {
  if constexpr (requires { value.isUnsigned(); }) {
    if (value.isUnsigned()) return value.toUInt();
  }
  return std::nullopt;
}

// What a tensor's opcodes, its storage in the archive and its place in the value weigh, at most.
std::size_t weight_of_tensor(const at::Tensor& tensor) {
  // A rebuild call of a storage, two flags and hooks weighs 20; each of the tuples of sizes and strides 2 and its
  // integers.
  const auto strided = [](std::size_t dimensions) { return 20 + 2 * (2 + dimensions); };
  const auto dimensions = static_cast<std::size_t>(tensor.dim());
  if (tensor.layout() == c10::kStrided) return strided(dimensions);
  // Three parts at most, of which the values of blocks have the most dimensions; layout, size and a flag around.
  return 3 * strided(dimensions + 2) + dimensions + 16;
}

// What a value weighs without its entries.
std::size_t own_weight_of(const c10::IValue& value) {
  if (value.isComplexDouble() || value.isDevice()) return 6;
  if (value.isList() || value.isGenericDict()) return 4;
  return value.isTuple() ? 3 : 2;
}

// One walk over a value, which writes where it has a writer and else only looks.
class ValueWalk {
 public:
  ValueWalk(PickleWriter* out, const TensorEmitter* emit_tensor, std::size_t weight_beside = 0)
      : out_(out), emit_tensor_(emit_tensor), weight_(weight_beside) {}

  // Returns false after a refusal, which `refusal` then tells.
  bool visit(const c10::IValue& value, int depth);

  std::string refusal() const { return place_.empty() ? reason_ : place_ + ": " + reason_; }
  std::size_t weight() const noexcept { return weight_; }

 private:
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool weigh(std::size_t weight);
  bool visit_scalar(const c10::IValue& value);
  bool visit_tensor(const at::Tensor& tensor);
  bool visit_list(c10::ArrayRef<c10::IValue> items, int depth);
  bool visit_tuple(const c10::ivalue::Tuple& tuple, int depth);
  bool visit_dict(const c10::impl::GenericDict& dict, int depth);
  bool visit_items(c10::ArrayRef<c10::IValue> items, int depth);

  PickleWriter* out_;
  const TensorEmitter* emit_tensor_;
  std::size_t weight_;
  std::string place_;
  std::string reason_;
};

bool ValueWalk::weigh(std::size_t weight) {
  weight_ += weight;
  if (weight_ <= kMaxWeight) return true;
  return refuse(
      formatted("too many parts for a reader's limit: they weigh more than {} (a number 2, a matrix 28); dump the "
                "value in pieces",
                kMaxWeight));
}

bool ValueWalk::visit(const c10::IValue& value, int depth) {
  if (value.isTensor()) return visit_tensor(value.toTensor());
  if (!weigh(own_weight_of(value))) return false;
  const bool is_list = value.isList();
  const bool is_tuple = value.isTuple();
  if (!is_list && !is_tuple && !value.isGenericDict()) return visit_scalar(value);
  if (depth >= kMaxDepth) return refuse(formatted("containers nested deeper than {} (one inside itself?)", kMaxDepth));
  if (is_list) return visit_list(value.toListRef(), depth);
  if (is_tuple) return visit_tuple(value.toTupleRef(), depth);
  return visit_dict(value.toGenericDict(), depth);
}

bool ValueWalk::visit_scalar(const c10::IValue& value) {
  const auto write = [&](auto&& opcodes) {
    if (out_ != nullptr) opcodes(*out_);
    return true;
  };
  if (value.isString()) {
    const std::string_view text = value.toStringView();
    if (text.size() > kMaxTextBytes) return refuse(text_too_long(text.size()));
    return write([&](PickleWriter& out) { out.text(text); });
  }
  if (value.isNone()) return write([](PickleWriter& out) { out.none(); });
  if (value.isBool()) return write([&](PickleWriter& out) { out.boolean(value.toBool()); });
  if (value.isDouble()) return write([&](PickleWriter& out) { out.real(value.toDouble()); });
  if (value.isInt()) return write([&](PickleWriter& out) { out.integer(value.toInt()); });
  if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    return write([&](PickleWriter& out) { out.complex(number.real(), number.imag()); });
  }
  if (const std::optional<std::uint64_t> number = unsigned_of(value)) {
    return write([&](PickleWriter& out) { out.unsigned_integer(*number); });
  }
  if (value.isSymInt()) {
    if (const auto number = value.toSymInt().maybe_as_int()) {
      return write([&](PickleWriter& out) { out.integer(*number); });
    }
    return refuse("a symbolic integer, which stands for no value yet");
  }
  if (value.isDevice()) {
    const c10::Device device = value.toDevice();
    return write([&](PickleWriter& out) { out.device(c10::DeviceTypeName(device.type(), true), device.index()); });
  }
  if (value.isSymFloat() || value.isSymBool()) return refuse("a symbolic number, which stands for no value yet");
  return refuse(formatted("a value of kind {}, which has no plain form in Python", value.tagKind()));
}

bool ValueWalk::visit_tensor(const at::Tensor& tensor) {
  if (std::optional<std::string> reason = refusal_of_tensor(tensor)) return refuse(std::move(*reason));
  if (!weigh(weight_of_tensor(tensor))) return false;
  if (out_ != nullptr) (*emit_tensor_)(*out_, tensor);
  return true;
}

bool ValueWalk::visit_items(c10::ArrayRef<c10::IValue> items, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!visit(items[i], depth + 1)) {
      place_.insert(0, formatted("[{}]", i));
      return false;
    }
  }
  return true;
}

bool ValueWalk::visit_list(c10::ArrayRef<c10::IValue> items, int depth) {
  if (out_ != nullptr) {
    out_->empty_list();
    if (items.empty()) return true;
    out_->mark();
  }
  if (!visit_items(items, depth)) return false;
  if (out_ != nullptr) out_->append_to_list();
  return true;
}

bool ValueWalk::visit_tuple(const c10::ivalue::Tuple& tuple, int depth) {
  const c10::ArrayRef<c10::IValue> items = tuple.elements().asArrayRef();
  const bool needs_mark = items.size() > 3;
  if (out_ != nullptr && needs_mark) out_->mark();
  if (!visit_items(items, depth)) return false;
  if (out_ == nullptr) return true;
  if (items.empty()) {
    out_->empty_tuple();
  } else if (needs_mark) {
    out_->tuple_of_marked();
  } else {
    out_->tuple_of_last(static_cast<int>(items.size()));
  }
  return true;
}

bool ValueWalk::visit_dict(const c10::impl::GenericDict& dict, int depth) {
  if (out_ != nullptr) {
    out_->empty_dict();
    if (dict.empty()) return true;
    out_->mark();
  }
  for (const auto& entry : dict) {
    const c10::IValue& key = entry.key();
    if (!key.isString() && !key.isInt() && !key.isDouble() && !key.isBool() && !key.isComplexDouble()) {
      return refuse(formatted("a dict with a key of kind {}", key.tagKind()));
    }
    if (!visit(key, depth + 1)) return false;
    if (!visit(entry.value(), depth + 1)) {
      place_.insert(0, key_text(key));
      return false;
    }
  }
  if (out_ != nullptr) out_->add_to_dict();
  return true;
}

}  // namespace

PickleWriter::PickleWriter(int protocol) {
  // As much as glibc serves from its thread cache; what is larger makes it tidy up each time.
  bytes_.reserve(1000);
  put('\x80');
  put(static_cast<char>(protocol));
}

void PickleWriter::put_little_endian(std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) put(static_cast<char>((value >> (8 * i)) & 0xFF));
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value <= 0xFF) {
    put('K');
    put_little_endian(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xFFFF) {
    put('M');
    put_little_endian(static_cast<std::uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    put('J');
    put_little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    put('\x8a');
    put('\x08');
    put_little_endian(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::unsigned_integer(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    integer(static_cast<std::int64_t>(value));
    return;
  }
  // The ninth byte keeps the sign bit clear.
  put('\x8a');
  put('\x09');
  put_little_endian(value, 8);
  put('\0');
}

void PickleWriter::real(double value) {
  put('G');
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) put(static_cast<char>((bits >> (8 * i)) & 0xFF));
}

void PickleWriter::complex(double real_part, double imaginary_part) {
  global("__builtin__", "complex");
  real(real_part);
  real(imaginary_part);
  tuple_of_last(2);
  reduce();
}

void PickleWriter::device(std::string_view type, std::int64_t index) {
  global("torch", "device");
  text(type);
  if (index >= 0) integer(index);
  tuple_of_last(index >= 0 ? 2 : 1);
  reduce();
}

void PickleWriter::text(std::string_view value) {
  const std::size_t header = bytes_.size();
  put('X');
  put_little_endian(0, 4);
  append_escaped(bytes_, value);
  const std::size_t length = bytes_.size() - header - 5;
  if (length > kMaxTextBytes) throw ConfigError(text_too_long(length));
  for (int i = 0; i < 4; ++i) bytes_[header + 1 + static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
}

void PickleWriter::bytes(std::string_view value) {
  if (value.size() <= 0xFF) {
    put('C');
    put_little_endian(value.size(), 1);
  } else if (value.size() <= std::numeric_limits<std::uint32_t>::max()) {
    put('B');
    put_little_endian(value.size(), 4);
  } else {
    put('\x8e');
    put_little_endian(value.size(), 8);
  }
  bytes_.append(value);
}

void PickleWriter::integer_tuple(const std::int64_t* values, std::size_t count) {
  if (count == 0) {
    empty_tuple();
    return;
  }
  if (count > 3) mark();
  for (std::size_t i = 0; i < count; ++i) integer(values[i]);
  if (count > 3) {
    tuple_of_marked();
  } else {
    tuple_of_last(static_cast<int>(count));
  }
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  const std::size_t size = module.size() + name.size() + 2;
  const auto known = std::find_if(globals_.begin(), globals_.end(), [&](const Span& span) {
    if (span.size != size) return false;
    const std::string_view text = std::string_view(bytes_).substr(span.offset, span.size);
    return text.starts_with(module) && text[module.size()] == '\n' && text.substr(module.size() + 1).starts_with(name);
  });
  const auto index = static_cast<std::uint64_t>(known - globals_.begin());
  const bool is_short = index <= 0xFF;
  if (known != globals_.end()) {
    put(is_short ? 'h' : 'j');
    put_little_endian(index, is_short ? 1 : 4);
    return;
  }
  put('c');
  globals_.push_back({bytes_.size(), size});
  bytes_.append(module);
  put('\n');
  bytes_.append(name);
  put('\n');
  put(is_short ? 'q' : 'r');
  put_little_endian(index, is_short ? 1 : 4);
}

std::string PickleWriter::finish() {
  put('.');
  return std::move(bytes_);
}

void write_value(PickleWriter& out, const c10::IValue& value, const TensorEmitter& emit_tensor,
                 std::size_t weight_beside) {
  ValueWalk walk(&out, &emit_tensor, weight_beside);
  if (!walk.visit(value, 0)) throw ConfigError(walk.refusal());
}

std::size_t weight_of(const c10::IValue& value) {
  ValueWalk walk(nullptr, nullptr);
  walk.visit(value, 0);
  return walk.weight();
}

std::optional<std::string> refusal_of(const c10::IValue& value) {
  ValueWalk walk(nullptr, nullptr);
  if (walk.visit(value, 0)) return std::nullopt;
  return walk.refusal();
}

}  // namespace dbg::codec
