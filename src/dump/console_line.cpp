// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Describes a value in a line's space.
#include "dump/console_line.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "dbg/tags.h"

namespace dbg {
namespace {

constexpr std::int64_t kSampled = 5;
constexpr std::size_t kLongestText = 200;

std::string sample_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.numel() == 0) return "[]";
  at::Tensor row = tensor.detach();
  while (row.dim() > 1) row = row.select(0, 0);
  if (row.dim() == 0) row = row.unsqueeze(0);
  row = row.slice(0, 0, kSampled);
  if (row._is_zerotensor()) row = at::zeros(row.sizes(), row.options().device(at::kCPU));  // it has no memory
  row = row.cpu().resolve_conj().resolve_neg().contiguous();
  const auto* raw = static_cast<const std::byte*>(row.const_data_ptr());
  if (raw == nullptr) return "[no memory]";
  std::string text = "[";
  for (std::int64_t i = 0; i < row.numel(); ++i) {
    if (i > 0) text += ", ";
    text += base::element_text(row.scalar_type(), raw + i * row.element_size());
  }
  return text + (tensor.numel() > row.numel() ? ", ...]" : "]");
}

std::string plain_text(const c10::IValue& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return python_text(value.toBool());
  if (value.isInt()) return python_text(value.toInt());
  if (value.isDouble()) return python_text(value.toDouble());
  if (value.isString()) {
    const std::string& text = value.toStringRef();
    std::string line = text.size() <= kLongestText ? text : text.substr(0, kLongestText) + "...";
    std::replace_if(
        line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    return line;
  }
  if (value.isGenericDict()) return formatted("{} entries", value.toGenericDict().size());
  if (value.isTuple()) return formatted("{} elements", value.toTupleRef().size());
  if (value.isList()) return formatted("{} elements", value.toListRef().size());
  return "";
}

}  // namespace

std::string console_line(std::string_view kind, std::string_view path, const c10::IValue& value) noexcept {
  try {
    if (!value.isTensor()) {
      return formatted("[Dumper.{}] {} type={} sample={}", kind, path, value.tagKind(), plain_text(value));
    }
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return formatted("[Dumper.{}] {} type=Tensor undefined", kind, path);
    std::string sample = "?";
    (void)base::run_fenced([&] { sample = sample_of(tensor); });
    return formatted("[Dumper.{}] {} type=Tensor shape=[{}] dtype={} device={} sample={}", kind, path,
                     fmt::join(tensor.sizes(), ", "), base::dtype_name(tensor.scalar_type()), tensor.device().str(),
                     sample);
  } catch (...) {
    return {};
  }
}

}  // namespace dbg
