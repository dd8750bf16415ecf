// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Owned tags, and how a tag prints.
#include "dbg/tags.h"

#include <charconv>
#include <cmath>

namespace dbg {
namespace {

// Python's repr(float): the shortest digits that read back equal, plain from 1e-4 up to below 1e16.
void append_real(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  char scientific[40];
  const auto end = std::to_chars(scientific, scientific + sizeof scientific, value, std::chars_format::scientific);
  const std::string_view text(scientific, static_cast<std::size_t>(end.ptr - scientific));
  const std::size_t mark = text.find('e');
  std::string_view mantissa = text.substr(0, mark);
  int exponent = 0;
  const std::size_t exponent_at = mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + exponent_at, text.data() + text.size(), exponent);
  if (mantissa.front() == '-') {
    out.push_back('-');
    mantissa.remove_prefix(1);
  }
  if (exponent < -4 || exponent >= 16) {
    out += mantissa;
    out.push_back('e');
    out.push_back(exponent < 0 ? '-' : '+');
    const int size = exponent < 0 ? -exponent : exponent;
    if (size < 10) out.push_back('0');
    out += std::to_string(size);
    return;
  }
  std::string digits;
  for (const char c : mantissa) {
    if (c != '.') digits.push_back(c);
  }
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    out += digits;
    return;
  }
  const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out.append(digits, 0, whole);
  out.push_back('.');
  if (digits.size() > whole) {
    out.append(digits, whole, std::string::npos);
  } else {
    out.push_back('0');
  }
}

}  // namespace

TagValue::TagValue(TagView view) {
  switch (view.kind()) {
    case TagKind::none:
      break;
    case TagKind::boolean:
      value_ = view.boolean();
      break;
    case TagKind::integer:
      value_ = view.integer();
      break;
    case TagKind::real:
      value_ = view.real();
      break;
    case TagKind::text:
      value_ = std::string(view.text());
      break;
  }
}

TagView TagValue::view() const noexcept {
  switch (kind()) {
    case TagKind::none:
      break;
    case TagKind::boolean:
      return *std::get_if<bool>(&value_);
    case TagKind::integer:
      return *std::get_if<std::int64_t>(&value_);
    case TagKind::real:
      return *std::get_if<double>(&value_);
    case TagKind::text:
      return *std::get_if<std::string>(&value_);
  }
  return {};
}

Tags::Tags(TagList list) {
  entries_.reserve(list.size());
  for (const TagRef& tag : list) set(tag.key, tag.value);
}

void Tags::set(std::string_view key, TagValue value) {
  for (Entry& entry : entries_) {
    if (entry.first == key) {
      entry.second = std::move(value);
      return;
    }
  }
  entries_.emplace_back(std::string(key), std::move(value));
}

bool Tags::erase(std::string_view key) {
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->first == key) {
      entries_.erase(entry);
      return true;
    }
  }
  return false;
}

const TagValue* Tags::find(std::string_view key) const noexcept {
  for (const Entry& entry : entries_) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

void append_python_text(std::string& out, TagView value) {
  switch (value.kind()) {
    case TagKind::none:
      out += "None";
      return;
    case TagKind::boolean:
      out += value.boolean() ? "True" : "False";
      return;
    case TagKind::integer: {
      char digits[24];
      const auto end = std::to_chars(digits, digits + sizeof digits, value.integer());
      out.append(digits, end.ptr);
      return;
    }
    case TagKind::real:
      append_real(out, value.real());
      return;
    case TagKind::text:
      out += value.text();
      return;
  }
}

std::string python_text(TagView value) {
  std::string text;
  append_python_text(text, value);
  return text;
}

}  // namespace dbg
