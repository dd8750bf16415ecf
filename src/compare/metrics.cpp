// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Walks two tensors in step and measures them.
#include "compare/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/dtype.h"
#include "base/tensor_blocks.h"
#include "base/vectorized.h"
#include "compare/cast_difference.h"
#include "compare/number_walk.h"
#include "compare/percentiles.h"

namespace dbg::compare {
namespace {

using base::NumberKind;

// Sums of products, in lanes for vector instructions.
struct Sums {
  static constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> xx{};
  std::array<double, kLanes> yy{};
  std::array<double, kLanes> xy{};

  void add(double x, double y, std::size_t lane) {
    xx[lane] += x * x;
    yy[lane] += y * y;
    xy[lane] += x * y;
  }

  void add_finite(const double* x, const double* y, std::size_t count) {
    const Sums sums = base::vectorized([=]() DBG_INLINED {
      Sums part;
      std::size_t i = 0;
      for (; i + kLanes <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) part.add(x[i + lane], y[i + lane], lane);
      }
      for (; i < count; ++i) part.add(x[i], y[i], 0);
      return part;
    });
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      xx[lane] += sums.xx[lane];
      yy[lane] += sums.yy[lane];
      xy[lane] += sums.xy[lane];
    }
  }

  void add_any(const double* x, const double* y, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (std::isfinite(x[i]) && std::isfinite(y[i])) add(x[i], y[i], 0);
    }
  }

  static double total(const std::array<double, kLanes>& lanes) {
    return std::accumulate(lanes.begin(), lanes.end(), 0.0);
  }

  double cosine() const {
    const double product = std::sqrt(total(xx)) * std::sqrt(total(yy));
    if (product > 0) return total(xy) / product;
    return total(xx) == total(yy) ? 1 : 0;
  }
};

// The smallest and the largest finite value.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(const double* values, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!std::isfinite(values[i])) continue;
      low = std::min(low, values[i]);
      high = std::max(high, values[i]);
    }
  }
};

std::int64_t count_outside_finite(const double* magnitude, const double* distance, std::size_t elements,
                                  ElementTolerance tolerance) {
  return base::vectorized([=]() DBG_INLINED {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      count += distance[i] > tolerance.atol + tolerance.rtol * magnitude[i];
    }
    return count;
  });
}

std::int64_t count_outside(const NumberWalk& walk, ElementTolerance tolerance) {
  const std::size_t numbers_each = walk.numbers() / walk.elements();
  std::int64_t outside = 0;
  for (std::size_t i = 0; i < walk.elements(); ++i) {
    // The bound of an infinity is one, too, and an infinite distance is not within it.
    const double distance = walk.distance()[i];
    if (std::isfinite(distance) && distance <= tolerance.atol + tolerance.rtol * walk.magnitude_a()[i]) continue;
    bool is_equal = true;
    for (std::size_t part = i * numbers_each; part < (i + 1) * numbers_each; ++part) {
      const double x = walk.a()[part];
      const double y = walk.b()[part];
      is_equal = is_equal && (x == y || (x != x && y != y));
    }
    outside += !is_equal;
  }
  return outside;
}

bool fits_float(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Double:
    case at::ScalarType::ComplexDouble:
    case at::ScalarType::Int:
    case at::ScalarType::UInt32:
    case at::ScalarType::Long:
    case at::ScalarType::UInt64:
      return false;
    default:
      return true;
  }
}

template <class Real>
void find(const at::Tensor& a, const at::Tensor& b, const TensorDiff& difference, TensorMetrics& metrics) {
  const ElementTolerance tolerance = element_tolerance_of(coarser_of(a.scalar_type(), b.scalar_type()));
  const bool is_finite = difference.nan_in_both + difference.nan_only_in_a + difference.nan_only_in_b +
                             difference.inf_in_both + difference.inf_unequal ==
                         0;
  const bool is_same = difference.same_bits;
  PercentileFinder<Real> of_a(difference.elements);
  PercentileFinder<Real> of_b(is_same ? 0 : difference.elements);
  PercentileFinder<Real> of_difference(is_same ? 0 : difference.elements);
  Sums sums;
  Range range;
  std::int64_t outside = 0;
  static_assert(NumberWalk::kChunk <= PercentileFinder<Real>::kMostAtOnce);
  for (bool is_first = true; of_a.wants_pass() || of_b.wants_pass() || of_difference.wants_pass(); is_first = false) {
    NumberWalk walk(a, b);
    while (walk.next()) {
      if (of_a.wants_pass()) of_a.add(walk.size_a(), walk.elements());
      if (!is_same && of_b.wants_pass()) of_b.add(walk.size_b(), walk.elements());
      if (!is_same && of_difference.wants_pass()) of_difference.add(walk.distance(), walk.elements());
      if (!is_first || is_same) continue;
      if (is_finite) {
        sums.add_finite(walk.a(), walk.b(), walk.numbers());
        outside += count_outside_finite(walk.magnitude_a(), walk.distance(), walk.elements(), tolerance);
      } else {
        sums.add_any(walk.a(), walk.b(), walk.numbers());
        outside += count_outside(walk, tolerance);
        range.add(walk.size_a(), walk.elements());
        range.add(walk.size_b(), walk.elements());
      }
    }
    if (of_a.wants_pass()) of_a.end_pass();
    if (of_b.wants_pass()) of_b.end_pass();
    if (of_difference.wants_pass()) of_difference.end_pass();
  }
  metrics.a_percentiles = of_a.result();
  metrics.b_percentiles = is_same ? metrics.a_percentiles : of_b.result();
  if (is_same) {
    metrics.difference_percentiles.emplace().fill(difference.elements > 0 ? 0 : metrics.a_percentiles->front());
  } else {
    metrics.difference_percentiles = of_difference.result();
  }
  metrics.cosine = is_same ? 1 : sums.cosine();
  if (is_finite) {
    range.low = std::min(metrics.a_percentiles->front(), metrics.b_percentiles->front());
    range.high = std::max(metrics.a_percentiles->back(), metrics.b_percentiles->back());
  }
  metrics.low = range.low;
  metrics.high = range.high;
  if (difference.elements > 0) {
    metrics.outside_fraction = static_cast<double>(outside) / static_cast<double>(difference.elements);
  }
}

}  // namespace

TensorMetrics measure(const at::Tensor& a, const at::Tensor& b, const TensorDiff& difference) {
  TensorMetrics metrics;
  if (base::number_kind(a.scalar_type()) == NumberKind::opaque) {
    const double elements = static_cast<double>(std::max<std::int64_t>(difference.elements, 1));
    metrics.outside_fraction = static_cast<double>(difference.differing) / elements;
    metrics.cosine = difference.differing == 0 ? 1 : std::numeric_limits<double>::quiet_NaN();
    return metrics;
  }
  if (fits_float(a.scalar_type()) && fits_float(b.scalar_type())) {
    find<float>(a, b, difference, metrics);
  } else {
    find<double>(a, b, difference, metrics);
  }
  if (!difference.same_dtype) metrics.cast = cast_difference(a, b);
  return metrics;
}

Measures measures_of(const TensorDiff& difference, const TensorMetrics& metrics) noexcept {
  Measures measures;
  measures.rel_diff = difference.rel_diff;
  measures.max_abs = difference.max_abs;
  measures.mean_abs = difference.mean_abs;
  measures.cosine = metrics.cosine;
  measures.outside_fraction = metrics.outside_fraction;
  measures.differing_fraction =
      static_cast<double>(difference.differing) / static_cast<double>(std::max<std::int64_t>(difference.elements, 1));
  return measures;
}

}  // namespace dbg::compare
