// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Looks through one tensor.
#include "dbg/tensor_info.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "base/dtype.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "base/tensor_blocks.h"

namespace dbg {
namespace {

using base::NumberKind;

constexpr std::size_t kInfoChunk = 1024;  // numbers that are widened at once: stays in the first-level cache
constexpr std::int64_t kSampleEdge = 3;

// Sums, extremes and counts of the numbers seen so far.
template <class Wide>
class Statistics {
 public:
  void add_real(const Wide* numbers, std::size_t count) {
    if (!add_finite(numbers, count)) add_any(numbers, count);
  }

  void add_complex(const Wide* numbers, std::size_t count) {
    for (std::size_t i = 0; i + 1 < count; i += 2) {
      const Wide real = numbers[i];
      const Wide imaginary = numbers[i + 1];
      const bool is_nan = std::isnan(real) || std::isnan(imaginary);
      const bool is_inf = !is_nan && (std::isinf(real) || std::isinf(imaginary));
      nans += is_nan;
      infs += is_inf;
      zeros += real == 0 && imaginary == 0;
      for (const Wide part : {real, imaginary}) {
        if (std::isfinite(part)) add_one(part);
      }
      if (!is_nan && !is_inf) abs_max = std::max(abs_max, std::hypot(real, imaginary));
    }
  }

  std::int64_t nans = 0;
  std::int64_t infs = 0;
  std::int64_t zeros = 0;
  std::int64_t finite = 0;
  long double sum = 0;
  Wide min = std::numeric_limits<Wide>::infinity();
  Wide max = -std::numeric_limits<Wide>::infinity();
  Wide abs_max = -1;  // until there is a finite value: a complex one is finite only if both its parts are

 private:
  // Several running values side by side, so that the compiler may use vector instructions and need not keep the order
  // of one sum. Changes nothing and returns false when a number is not finite.
  bool add_finite(const Wide* numbers, std::size_t count) {
    constexpr std::size_t kLanes = sizeof(Wide) == sizeof(double) ? 4 : 1;
    std::array<Wide, kLanes> sums{};
    std::array<Wide, kLanes> lows;
    std::array<Wide, kLanes> highs;
    std::array<std::int64_t, kLanes> zero_counts{};
    std::array<std::int64_t, kLanes> odd_counts{};
    lows.fill(std::numeric_limits<Wide>::infinity());
    highs.fill(-std::numeric_limits<Wide>::infinity());
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const Wide x = numbers[i + lane];
        sums[lane] += x;
        lows[lane] = x < lows[lane] ? x : lows[lane];
        highs[lane] = x > highs[lane] ? x : highs[lane];
        zero_counts[lane] += x == 0;
        odd_counts[lane] += !(x - x == 0);
      }
    }
    for (; i < count; ++i) {
      const Wide x = numbers[i];
      sums[0] += x;
      lows[0] = std::min(lows[0], x);
      highs[0] = std::max(highs[0], x);
      zero_counts[0] += x == 0;
      odd_counts[0] += !(x - x == 0);
    }
    long double total = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if (odd_counts[lane] != 0) return false;
      total += sums[lane];
    }
    if (!std::isfinite(total)) return false;  // the sum overflowed, the numbers did not
    const Wide low = *std::min_element(lows.begin(), lows.end());
    const Wide high = *std::max_element(highs.begin(), highs.end());
    min = std::min(min, low);
    max = std::max(max, high);
    abs_max = std::max({abs_max, std::abs(low), std::abs(high)});
    for (const std::int64_t zero_count : zero_counts) zeros += zero_count;
    sum += total;
    finite += static_cast<std::int64_t>(count);
    return true;
  }

  void add_any(const Wide* numbers, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const Wide x = numbers[i];
      if (std::isnan(x)) {
        ++nans;
      } else if (std::isinf(x)) {
        ++infs;
      } else {
        zeros += x == 0;
        add_one(x);
        abs_max = std::max(abs_max, std::abs(x));
      }
    }
  }

  void add_one(Wide x) {
    sum += x;
    min = std::min(min, x);
    max = std::max(max, x);
    ++finite;
  }
};

// Text of the extremes with all digits. `Wide` holds integers of 64 bits exactly; they are printed as integers.
template <class Wide>
std::string extreme_text(at::ScalarType dtype, Wide value) {
  switch (base::number_kind(dtype)) {
    case NumberKind::boolean:
      return value != 0 ? "True" : "False";
    case NumberKind::integer:
      return value < 0 ? formatted("{}", static_cast<std::int64_t>(value))
                       : formatted("{}", static_cast<std::uint64_t>(value));
    default:
      break;
  }
  const bool is_double = dtype == at::ScalarType::Double || dtype == at::ScalarType::ComplexDouble;
  return is_double ? formatted("{}", static_cast<double>(value)) : formatted("{}", static_cast<float>(value));
}

// The first and last elements, picked up as the blocks pass by.
class Sampler {
 public:
  Sampler(at::ScalarType dtype, std::int64_t elements) : dtype_(dtype), elements_(elements) {}

  void see(const base::TensorBlocks& blocks) {
    const std::int64_t end = blocks.start() + blocks.elements();
    for (std::int64_t i = blocks.start(); i < std::min(end, kSampleEdge); ++i) take(blocks, i);
    for (std::int64_t i = std::max({blocks.start(), elements_ - kSampleEdge, kSampleEdge}); i < end; ++i) {
      take(blocks, i);
    }
  }

  std::string text() const {
    std::string line = "[";
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (i > 0) line += ", ";
      if (elements_ > 2 * kSampleEdge && i == static_cast<std::size_t>(kSampleEdge)) line += "..., ";
      line += texts_[i];
    }
    return line + "]";
  }

 private:
  void take(const base::TensorBlocks& blocks, std::int64_t index) {
    const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(dtype_));
    texts_.push_back(base::element_text(dtype_, blocks.data() + (index - blocks.start()) * item_bytes));
  }

  at::ScalarType dtype_;
  std::int64_t elements_;
  std::vector<std::string> texts_;
};

template <class Wide>
void look_through(const at::Tensor& tensor, TensorInfo& info) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool is_complex = base::number_kind(dtype) == NumberKind::complex;
  const std::size_t item_bytes = c10::elementSize(dtype);
  const std::size_t numbers_each = base::numbers_per_element(dtype);
  const std::size_t chunk_elements = kInfoChunk / numbers_each;
  std::array<Wide, kInfoChunk> numbers;
  Statistics<Wide> statistics;
  Sampler sampler(dtype, info.elements);
  for (base::TensorBlocks blocks(tensor, base::kBlockElements); blocks.next();) {
    sampler.see(blocks);
    const auto elements = static_cast<std::size_t>(blocks.elements());
    for (std::size_t at = 0; at < elements; at += chunk_elements) {
      const std::size_t count = std::min(chunk_elements, elements - at);
      base::widen(dtype, blocks.data() + at * item_bytes, count, numbers.data());
      if (is_complex) {
        statistics.add_complex(numbers.data(), count * numbers_each);
      } else {
        statistics.add_real(numbers.data(), count);
      }
    }
  }
  info.has_values = true;
  info.sample = sampler.text();
  info.nan_count = statistics.nans;
  info.inf_count = statistics.infs;
  info.zero_count = statistics.zeros;
  if (statistics.finite == 0) return;
  info.min = static_cast<double>(statistics.min);
  info.max = static_cast<double>(statistics.max);
  info.mean = static_cast<double>(statistics.sum / static_cast<long double>(statistics.finite));
  if (statistics.abs_max >= 0) info.abs_max = static_cast<double>(statistics.abs_max);
  info.min_text = extreme_text(dtype, statistics.min);
  info.max_text = extreme_text(dtype, statistics.max);
}

void describe_into(const at::Tensor& tensor, TensorInfo& info) {
  info.note = "undefined tensor";
  if (!tensor.defined()) return;
  info.note = "it could not be looked at";
  const at::ScalarType dtype = tensor.scalar_type();
  info.dtype = base::dtype_name(dtype);
  info.device = tensor.device().str();
  info.note = base::why_unreadable(tensor);
  info.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  info.elements = tensor.numel();
  info.bytes = info.elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  if (tensor.layout() == at::kStrided) info.strides.assign(tensor.strides().begin(), tensor.strides().end());
  if (!info.note.empty()) return;
  if (base::number_kind(dtype) == NumberKind::opaque) {
    info.note = "elements of " + info.dtype + " can't be read as numbers";
    return;
  }
  if (base::fits_double(dtype)) {
    look_through<double>(tensor, info);
  } else {
    look_through<long double>(tensor, info);
  }
}

}  // namespace

TensorInfo describe(const at::Tensor& tensor) {
  TensorInfo info;
  const auto cause = base::run_fenced([&] { describe_into(tensor, info); });
  // A refusal that was found keeps its words; what it then could not tell (a nested tensor's shape) stays empty.
  if (cause && (info.note.empty() || info.note == "it could not be looked at")) info.note = *cause;
  return info;
}

std::string to_text(const TensorInfo& info) {
  if (info.dtype.empty()) return "(" + info.note + ")";
  const std::string head = formatted("{}[{}] {}", info.dtype, fmt::join(info.shape, ", "), info.device);
  if (!info.has_values) return head + " (" + info.note + ")";
  return formatted("{} min={} max={} mean={:.6g} abs_max={:.6g} nan={} inf={} zero={} {}", head,
                   info.min_text.empty() ? "nan" : info.min_text, info.max_text.empty() ? "nan" : info.max_text,
                   info.mean, info.abs_max, info.nan_count, info.inf_count, info.zero_count, info.sample);
}

}  // namespace dbg
