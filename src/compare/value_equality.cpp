// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Equality and text of values that are no tensors.
#include "compare/value_equality.h"

#include <ATen/core/Tensor.h>
#include <fmt/ranges.h>

#include "base/formatted.h"
#include "codec/byte_source.h"
#include "dbg/tensor_info.h"

namespace dbg::compare {
namespace {

constexpr std::size_t kLongestText = 60;

bool are_equal_numbers(double a, double b) {
  return a == b || (a != a && b != b);
}

bool is_number(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool();
}

double number_of(const c10::IValue& value) {
  if (value.isInt()) return static_cast<double>(value.toInt());
  return value.isBool() ? static_cast<double>(value.toBool()) : value.toDouble();
}

}  // namespace

bool are_equal(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (is_number(a) && is_number(b)) return are_equal_numbers(number_of(a), number_of(b));
  if (a.isComplexDouble() && b.isComplexDouble()) {
    const auto x = a.toComplexDouble();
    const auto y = b.toComplexDouble();
    return are_equal_numbers(x.real(), y.real()) && are_equal_numbers(x.imag(), y.imag());
  }
  if (a.isString() && b.isString()) return a.toStringRef() == b.toStringRef();
  if (a.isDevice() && b.isDevice()) return a.toDevice() == b.toDevice();
  if (a.isTensor() && b.isTensor()) return diff(a.toTensor(), b.toTensor()).same_values();
  return a.isNone() && b.isNone();
}

std::string value_text(const c10::IValue& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return formatted("{}", value.toInt());
  if (value.isDouble()) return formatted("{}", value.toDouble());
  if (value.isComplexDouble()) {
    return formatted("{}{:+}j", value.toComplexDouble().real(), value.toComplexDouble().imag());
  }
  if (value.isString()) return formatted("'{}'", codec::printable(value.toStringRef(), kLongestText));
  if (value.isDevice()) return value.toDevice().str();
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? formatted("a tensor [{}]", fmt::join(tensor.sizes().vec(), ", ")) : "no tensor";
  }
  return "a " + value.tagKind();
}

}  // namespace dbg::compare
