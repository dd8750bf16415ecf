// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Walks two tensors in step and measures how they differ.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "base/tensor_blocks.h"
#include "base/vectorized.h"
#include "dbg/tensor_info.h"

namespace dbg {
namespace {

using base::NumberKind;

constexpr std::size_t kDiffChunk = 1024;  // numbers of each side that are widened at once
constexpr std::int64_t kNowhere = -1;

// What has been seen of the pairs (x, y) so far. Indices are row-major, of elements.
template <class Wide>
class PairSums {
 public:
  void add_real(const Wide* x, const Wide* y, std::size_t count, std::int64_t start) {
    if (!add_finite(x, y, count, start)) {
      for (std::size_t i = 0; i < count; ++i) add_element(x + i, y + i, 1, start + static_cast<std::int64_t>(i));
    }
  }

  void add_complex(const Wide* x, const Wide* y, std::size_t elements, std::int64_t start) {
    for (std::size_t i = 0; i < elements; ++i) {
      add_element(x + 2 * i, y + 2 * i, 2, start + static_cast<std::int64_t>(i));
    }
  }

  // A double's square overflows beyond 1e154 and vanishes below 1e-162.
  bool sums_are_reliable() const {
    if (first_odd_ != kNowhere) return true;  // not used then
    const long double smallest = std::numeric_limits<Wide>::min() / std::numeric_limits<Wide>::epsilon();
    return std::isfinite(squares_) && std::isfinite(squared_differences_) && std::isfinite(differences_) &&
           (differing_ == 0 || (squares_ > smallest && squared_differences_ > smallest));
  }

  void report(TensorDiff& result) const {
    result.differing = differing_;
    result.nan_in_both = nan_in_both_;
    result.nan_only_in_a = nan_only_in_x_;
    result.nan_only_in_b = nan_only_in_y_;
    result.inf_in_both = inf_in_both_;
    result.inf_unequal = inf_unequal_;
    if (first_odd_ != kNowhere) return;  // the measures stay infinite
    result.rel_diff = squares_ > 0 ? static_cast<double>(squared_differences_ / squares_) : 0.0;
    result.max_abs = static_cast<double>(largest_);
    result.mean_abs = measured_ > 0 ? static_cast<double>(differences_ / static_cast<long double>(measured_)) : 0.0;
  }

  // The first place that is NaN or infinite on one side only, else that of the largest difference, else kNowhere.
  std::int64_t place_to_show() const { return first_odd_ != kNowhere ? first_odd_ : largest_at_; }

 private:
  // Returns false, having changed nothing, when a number is not finite.
  bool add_finite(const Wide* x, const Wide* y, std::size_t count, std::int64_t start) {
    // Side by side for vector instructions; the chunks' sums then meet in a long double.
    constexpr std::size_t kLanes = sizeof(Wide) == sizeof(double) ? 8 : 1;
    using Row = std::array<Wide, kLanes>;
    struct Lanes {
      Row squares{};
      Row squared_differences{};
      Row differences{};
      Row largest{};
      Row differing{};  // a count
      Row odd{};        // zero as long as all numbers are finite, then NaN
    };
    const Lanes lanes = base::vectorized([x, y, count]() DBG_INLINED {
      Lanes own;
      const auto add = [&own](Wide a, Wide b, std::size_t lane) DBG_INLINED {
        const Wide difference = std::abs(a - b);
        own.squares[lane] += a * a + b * b;
        own.squared_differences[lane] += difference * difference;
        own.differences[lane] += difference;
        own.largest[lane] = difference > own.largest[lane] ? difference : own.largest[lane];
        own.differing[lane] += a != b ? Wide(1) : Wide(0);
        own.odd[lane] += (a - a) + (b - b);
      };
      std::size_t i = 0;
      for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) add(x[i + lane], y[i + lane], lane);
      }
      for (; i < count; ++i) add(x[i], y[i], 0);
      return own;
    });
    for (const Wide odd : lanes.odd) {
      if (!(odd == 0)) return false;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      squares_ += lanes.squares[lane];
      squared_differences_ += lanes.squared_differences[lane];
      differences_ += lanes.differences[lane];
      differing_ += static_cast<std::int64_t>(lanes.differing[lane]);
    }
    measured_ += static_cast<std::int64_t>(count);
    const Wide largest = *std::max_element(lanes.largest.begin(), lanes.largest.end());
    if (largest > largest_) {
      largest_ = largest;
      std::size_t i = 0;
      while (std::abs(x[i] - y[i]) != largest) ++i;
      largest_at_ = start + static_cast<std::int64_t>(i);
    }
    return true;
  }

  // One element of one part, or of two when complex. A part that is not finite keeps the element out of the sums.
  void add_element(const Wide* x, const Wide* y, std::size_t parts, std::int64_t index) {
    bool x_is_nan = false;
    bool y_is_nan = false;
    bool has_inf = false;
    bool is_equal = true;
    for (std::size_t part = 0; part < parts; ++part) {
      const bool both_nan = std::isnan(x[part]) && std::isnan(y[part]);
      x_is_nan |= std::isnan(x[part]);
      y_is_nan |= std::isnan(y[part]);
      has_inf |= std::isinf(x[part]) || std::isinf(y[part]);
      is_equal &= both_nan || x[part] == y[part];
    }
    differing_ += !is_equal;
    if (x_is_nan || y_is_nan || has_inf) {
      if (x_is_nan && y_is_nan) ++nan_in_both_;
      if (x_is_nan && !y_is_nan) ++nan_only_in_x_;
      if (!x_is_nan && y_is_nan) ++nan_only_in_y_;
      if (!x_is_nan && !y_is_nan) ++(is_equal ? inf_in_both_ : inf_unequal_);
      if (!is_equal && first_odd_ == kNowhere) first_odd_ = index;
      return;
    }
    const Wide difference = parts == 1 ? std::abs(x[0] - y[0]) : std::hypot(x[0] - y[0], x[1] - y[1]);
    for (std::size_t part = 0; part < parts; ++part) squares_ += x[part] * x[part] + y[part] * y[part];
    squared_differences_ += difference * difference;
    differences_ += difference;
    ++measured_;
    if (difference > largest_) {
      largest_ = difference;
      largest_at_ = index;
    }
  }

  long double squares_ = 0;              // sum of xx + yy
  long double squared_differences_ = 0;  // sum of (x-y)(x-y)
  long double differences_ = 0;          // sum of |x-y|
  Wide largest_ = 0;
  std::int64_t largest_at_ = kNowhere;
  std::int64_t measured_ = 0;
  std::int64_t differing_ = 0;
  std::int64_t nan_in_both_ = 0;
  std::int64_t nan_only_in_x_ = 0;
  std::int64_t nan_only_in_y_ = 0;
  std::int64_t inf_in_both_ = 0;
  std::int64_t inf_unequal_ = 0;
  std::int64_t first_odd_ = kNowhere;
};

// Raw elements as numbers, complex ones when the other side is complex.
template <class Wide>
void widen_as(at::ScalarType dtype, bool as_complex, const std::byte* raw, std::size_t elements, Wide* out) {
  base::widen(dtype, raw, elements, out);
  if (!as_complex || base::numbers_per_element(dtype) == 2) return;
  for (std::size_t i = elements; i-- > 0;) {
    out[2 * i] = out[i];
    out[2 * i + 1] = 0;
  }
}

struct RawComparison {
  std::int64_t first_at = kNowhere;

  void add(const std::byte* a, const std::byte* b, std::size_t elements, std::size_t item_bytes, std::int64_t start) {
    const std::size_t bytes = elements * item_bytes;
    if (first_at != kNowhere || std::memcmp(a, b, bytes) == 0) return;
    const auto byte = static_cast<std::size_t>(std::mismatch(a, a + bytes, b).first - a);
    first_at = start + static_cast<std::int64_t>(byte / item_bytes);
  }
};

std::string text_at(const base::TensorBlocks& blocks, at::ScalarType dtype, std::int64_t index) {
  const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  return base::element_text(dtype, blocks.data() + (index - blocks.start()) * item_bytes);
}

// Returns whether the sums could be held in `Wide`; the result is complete but for them either way.
template <class Wide>
bool compare_numbers(const at::Tensor& a, const at::Tensor& b, TensorDiff& result) {
  const at::ScalarType dtype_a = a.scalar_type();
  const at::ScalarType dtype_b = b.scalar_type();
  const std::size_t bytes_a = c10::elementSize(dtype_a);
  const std::size_t bytes_b = c10::elementSize(dtype_b);
  const bool is_complex = std::max(base::numbers_per_element(dtype_a), base::numbers_per_element(dtype_b)) == 2;
  const std::size_t chunk_elements = is_complex ? kDiffChunk / 2 : kDiffChunk;
  std::array<Wide, kDiffChunk> x;
  std::array<Wide, kDiffChunk> y;
  PairSums<Wide> sums;
  RawComparison raw;
  base::TensorBlocks blocks_a(a, base::kBlockElements);
  base::TensorBlocks blocks_b(b, base::kBlockElements);
  std::int64_t shown = kNowhere;
  while (blocks_a.next() && blocks_b.next()) {
    const auto elements = static_cast<std::size_t>(blocks_a.elements());
    for (std::size_t at = 0; at < elements; at += chunk_elements) {
      const std::size_t count = std::min(chunk_elements, elements - at);
      const std::int64_t start = blocks_a.start() + static_cast<std::int64_t>(at);
      const std::byte* raw_a = blocks_a.data() + at * bytes_a;
      const std::byte* raw_b = blocks_b.data() + at * bytes_b;
      if (result.same_dtype) raw.add(raw_a, raw_b, count, bytes_a, start);
      widen_as(dtype_a, is_complex, raw_a, count, x.data());
      widen_as(dtype_b, is_complex, raw_b, count, y.data());
      if (is_complex) {
        sums.add_complex(x.data(), y.data(), count, start);
      } else {
        sums.add_real(x.data(), y.data(), count, start);
      }
    }
    // The texts are taken while the block is there: a device's tensor is not fetched twice.
    if (const std::int64_t place = sums.place_to_show(); place != shown) {
      shown = place;
      result.max_at = base::coordinate_of(place, result.shape_a);
      result.a_at_max = text_at(blocks_a, dtype_a, place);
      result.b_at_max = text_at(blocks_b, dtype_b, place);
    }
  }
  result.same_bits = result.same_dtype && raw.first_at == kNowhere;
  if (raw.first_at != kNowhere) result.first_bits_at = base::coordinate_of(raw.first_at, result.shape_a);
  sums.report(result);
  result.compared = true;
  return sums.sums_are_reliable();
}

// Elements that are no numbers: equal or not, byte for byte.
void compare_bytes(const at::Tensor& a, const at::Tensor& b, TensorDiff& result) {
  const std::size_t item_bytes = c10::elementSize(a.scalar_type());
  RawComparison raw;
  base::TensorBlocks blocks_a(a, base::kBlockElements);
  base::TensorBlocks blocks_b(b, base::kBlockElements);
  while (blocks_a.next() && blocks_b.next()) {
    for (std::int64_t i = 0; i < blocks_a.elements(); ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * item_bytes;
      const std::int64_t index = blocks_a.start() + i;
      raw.add(blocks_a.data() + at, blocks_b.data() + at, 1, item_bytes, index);
      result.differing += std::memcmp(blocks_a.data() + at, blocks_b.data() + at, item_bytes) != 0;
    }
  }
  result.same_bits = result.differing == 0;
  result.compared = true;
  if (result.same_bits) {
    result.rel_diff = result.max_abs = result.mean_abs = 0;
  } else {
    result.first_bits_at = base::coordinate_of(raw.first_at, result.shape_a);
  }
}

// Fills what is known without the values; returns why they can't be compared, or nothing.
std::string compare_outsides(const at::Tensor& a, const at::Tensor& b, TensorDiff& result) {
  const std::string why_a = base::why_unreadable(a);
  const std::string why_b = base::why_unreadable(b);
  for (const auto& [tensor, dtype] : {std::pair(&a, &result.dtype_a), std::pair(&b, &result.dtype_b)}) {
    if (tensor->defined()) *dtype = base::dtype_name(tensor->scalar_type());
  }
  result.same_dtype = a.defined() && b.defined() && a.scalar_type() == b.scalar_type();
  if (!why_a.empty() || !why_b.empty()) {
    return formatted("a: {}; b: {}", why_a.empty() ? "readable" : why_a, why_b.empty() ? "readable" : why_b);
  }
  result.shape_a.assign(a.sizes().begin(), a.sizes().end());
  result.shape_b.assign(b.sizes().begin(), b.sizes().end());
  result.same_shape = result.shape_a == result.shape_b;
  if (!result.same_shape) {
    return formatted("shapes differ: [{}] against [{}]", fmt::join(result.shape_a, ", "),
                     fmt::join(result.shape_b, ", "));
  }
  result.elements = a.numel();
  const bool has_opaque = base::number_kind(a.scalar_type()) == NumberKind::opaque ||
                          base::number_kind(b.scalar_type()) == NumberKind::opaque;
  if (has_opaque && !result.same_dtype) {
    return formatted("no common measure for {} and {}", result.dtype_a, result.dtype_b);
  }
  return {};
}

void diff_into(const at::Tensor& a, const at::Tensor& b, TensorDiff& result) {
  result.note = compare_outsides(a, b, result);
  if (!result.note.empty()) return;
  if (base::number_kind(a.scalar_type()) == NumberKind::opaque) {
    compare_bytes(a, b, result);
    return;
  }
  const bool doubles_do = base::fits_double(a.scalar_type()) && base::fits_double(b.scalar_type());
  if (doubles_do && compare_numbers<double>(a, b, result)) return;
  compare_numbers<long double>(a, b, result);
}

}  // namespace

TensorDiff diff(const at::Tensor& a, const at::Tensor& b) {
  TensorDiff result;
  if (const auto cause = base::run_fenced([&] { diff_into(a, b, result); })) {
    TensorDiff failed;
    failed.note = *cause;
    return failed;
  }
  return result;
}

std::string to_text(const TensorDiff& difference) {
  if (!difference.compared) return "not compared: " + difference.note;
  if (difference.same_bits) return "same bits";
  std::string line;
  if (!difference.same_dtype) line += formatted("{} against {}: ", difference.dtype_a, difference.dtype_b);
  if (difference.differing == 0) {
    line += "equal values";
  } else {
    line += formatted("{} of {} elements differ, rel_diff={:.6g} max_abs={:.6g}", difference.differing,
                      difference.elements, difference.rel_diff, difference.max_abs);
    if (!difference.a_at_max.empty()) {
      line += formatted(" at [{}] ({} against {})", fmt::join(difference.max_at, ", "), difference.a_at_max,
                        difference.b_at_max);
    }
    line += formatted(" mean_abs={:.6g}", difference.mean_abs);
  }
  const std::int64_t nans = difference.nan_only_in_a + difference.nan_only_in_b;
  if (nans > 0) {
    line += formatted(", NaN on one side only: {} in a, {} in b", difference.nan_only_in_a, difference.nan_only_in_b);
  }
  if (difference.inf_unequal > 0) line += formatted(", unequal infinities: {}", difference.inf_unequal);
  return line;
}

}  // namespace dbg
