// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How much of a difference passes: the language of tolerances, and what counts where nobody says anything.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

namespace dbg::compare {

/// What a tolerance can ask for.
struct Measures {
  double rel_diff = 0;
  double max_abs = 0;
  double mean_abs = 0;
  double cosine = 1;
  double outside_fraction = 0;
  double differing_fraction = 0;
};

/// Conditions on measures: `rel <= 1e-3 or max_abs <= 1e-5 and outside <= 0.01`; `and` binds closer than `or`.
///
/// Measures: rel, max_abs, mean_abs, cosine, outside, differing (the last two are fractions of the elements).
/// Comparisons: <=, <, >=, >. A measure that is NaN meets no condition.
class Tolerance {
 public:
  /// Throws: ConfigError with the text and the reason when it is none.
  static Tolerance parse(std::string_view text);

  bool admits(const Measures& measures) const noexcept;
  const std::string& text() const noexcept { return text_; }

 private:
  struct Condition {
    double Measures::*measure = nullptr;
    bool is_upper = true;  // what is measured must be at most the bound
    bool is_strict = false;
    double bound = 0;
  };
  std::vector<std::vector<Condition>> alternatives_;  // one of them, whole
  std::string text_;
};

/// What counts for a dtype where no rule does: the table in docs/compare.md.
const Tolerance& default_tolerance(at::ScalarType dtype);

/// Which of two dtypes holds less: the one of the fewer digits, then of the smaller range. An integer is never coarser
/// than a real.
at::ScalarType coarser_of(at::ScalarType a, at::ScalarType b) noexcept;

/// The largest relative error that rounding to the dtype makes; 0 for integers.
double rounding_of(at::ScalarType dtype) noexcept;
/// The larger of two dtypes' by their names; a name that is none counts as an integer's.
double rounding_called(std::string_view dtype_a, std::string_view dtype_b);

/// |x-y| <= atol + rtol*|x| is within.
struct ElementTolerance {
  double rtol = 0;
  double atol = 0;
};
ElementTolerance element_tolerance_of(at::ScalarType dtype) noexcept;

}  // namespace dbg::compare
