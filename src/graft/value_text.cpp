// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Prints values, within bounds.
#include "graft/value_text.h"

#include <fmt/ranges.h>

#include "base/dtype.h"
#include "base/formatted.h"
#include "dbg/tensor_info.h"

namespace dbg::graft {
namespace {

constexpr std::size_t kLongest = 500;
constexpr int kDeepest = 4;

class Printer {
 public:
  void print(const c10::IValue& value, int depth) {
    if (out_.size() > kLongest || depth > kDeepest) {
      out_ += "...";
    } else if (value.isNone()) {
      out_ += "None";
    } else if (value.isBool()) {
      append_python_text(out_, value.toBool());
    } else if (value.isInt()) {
      append_python_text(out_, value.toInt());
    } else if (value.isDouble()) {
      append_python_text(out_, value.toDouble());
    } else if (value.isString()) {
      print_text(value.toStringRef());
    } else if (value.isTensor()) {
      print_tensor(value.toTensor());
    } else if (value.isGenericDict()) {
      print_dict(value.toGenericDict(), depth);
    } else if (value.isTuple()) {
      print_entries(value.toTupleRef().elements(), "(", ")", depth);
    } else if (value.isList()) {
      print_entries(value.toListRef(), "[", "]", depth);
    } else {
      out_ += value.tagKind();
    }
  }

  std::string take() {
    if (out_.size() > kLongest) out_ = out_.substr(0, kLongest) + "...";
    return std::move(out_);
  }

 private:
  void print_text(const std::string& text) {
    out_ += '\'';
    for (const char c : std::string_view(text).substr(0, kLongest))
      out_ += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    out_ += '\'';
  }

  void print_tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      out_ += "Tensor(undefined)";
      return;
    }
    out_ += formatted("Tensor({}[{}])", base::dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  }

  void print_dict(const c10::impl::GenericDict& dict, int depth) {
    out_ += '{';
    bool is_first = true;
    for (const auto& entry : dict) {
      if (out_.size() > kLongest) break;
      if (!is_first) out_ += ", ";
      is_first = false;
      print(entry.key(), depth + 1);
      out_ += ": ";
      print(entry.value(), depth + 1);
    }
    out_ += '}';
  }

  template <class Entries>
  void print_entries(const Entries& entries, const char* open, const char* close, int depth) {
    out_ += open;
    bool is_first = true;
    for (const c10::IValue& entry : entries) {
      if (out_.size() > kLongest) break;
      if (!is_first) out_ += ", ";
      is_first = false;
      print(entry, depth + 1);
    }
    out_ += close;
  }

  std::string out_;
};

}  // namespace

std::string value_text(const c10::IValue& value) {
  Printer printer;
  printer.print(value, 0);
  return printer.take();
}

std::string value_text(const std::vector<c10::IValue>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : ", ") + value_text(values[i]);
  return out + "]";
}

std::string value_text(const Tags& tags) {
  std::string out = "{";
  bool is_first = true;
  for (const auto& [key, value] : tags) {
    if (!is_first) out += ", ";
    is_first = false;
    out += key + "=";
    append_python_text(out, value.view());
  }
  return out + "}";
}

std::string info_text(const at::Tensor& on_host, c10::Device device) {
  TensorInfo info = describe(on_host);
  info.device = device.str();
  return to_text(info);
}

}  // namespace dbg::graft
