// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads tolerances; the table by dtype.
#include "compare/tolerance.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include "base/dtype.h"
#include "base/fork_lock.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::compare {
namespace {

using base::NumberKind;

struct MeasureName {
  std::string_view text;
  double Measures::*measure;
};
constexpr std::array<MeasureName, 7> kMeasureNames = {{{"rel", &Measures::rel_diff},
                                                       {"rel_diff", &Measures::rel_diff},
                                                       {"max_abs", &Measures::max_abs},
                                                       {"mean_abs", &Measures::mean_abs},
                                                       {"cosine", &Measures::cosine},
                                                       {"outside", &Measures::outside_fraction},
                                                       {"differing", &Measures::differing_fraction}}};

// What is known of a dtype's numbers. `unit` is half the distance from 1 to the number after it.
struct Grade {
  at::ScalarType dtype;
  double unit;
  double largest;  // power of ten, roughly
  const char* tolerance;
  ElementTolerance element;
};

// The tolerance on rel_diff is about (200 units)^2 / 2 for float32: what hundreds of operations add up to, and far
// below what a wrong formula makes. Coarser dtypes keep less of a distance, since a mistake of their size must still be
// seen. rtol and atol are those of torch.testing.assert_close where it has them.
constexpr std::array<Grade, 11> kGrades = {{
    {at::ScalarType::Double, 1.1e-16, 308, "rel <= 1e-18", {1e-7, 1e-7}},
    {at::ScalarType::ComplexDouble, 1.1e-16, 308, "rel <= 1e-18", {1e-7, 1e-7}},
    {at::ScalarType::Float, 6.0e-8, 38, "rel <= 1e-10", {1.3e-6, 1e-5}},
    {at::ScalarType::ComplexFloat, 6.0e-8, 38, "rel <= 1e-10", {1.3e-6, 1e-5}},
    {at::ScalarType::Half, 4.9e-4, 5, "rel <= 1e-5", {1e-3, 1e-5}},
    {at::ScalarType::ComplexHalf, 4.9e-4, 5, "rel <= 1e-5", {1e-3, 1e-5}},
    {at::ScalarType::BFloat16, 3.9e-3, 38, "rel <= 1e-3", {1.6e-2, 1e-5}},
    {at::ScalarType::Float8_e4m3fn, 6.3e-2, 2.6, "rel <= 1e-2", {0.13, 1e-5}},
    {at::ScalarType::Float8_e4m3fnuz, 6.3e-2, 2.4, "rel <= 1e-2", {0.13, 1e-5}},
    {at::ScalarType::Float8_e5m2, 0.125, 4.8, "rel <= 2e-2", {0.25, 1e-5}},
    {at::ScalarType::Float8_e5m2fnuz, 0.125, 4.8, "rel <= 2e-2", {0.25, 1e-5}},
}};

const Grade* grade_of(at::ScalarType dtype) noexcept {
  const auto found =
      std::find_if(kGrades.begin(), kGrades.end(), [dtype](const Grade& grade) { return grade.dtype == dtype; });
  return found == kGrades.end() ? nullptr : &*found;
}

[[noreturn]] void fail(std::string_view text, const std::string& reason) {
  throw ConfigError(
      formatted("tolerance '{}': {}; expected conditions such as 'rel <= 1e-3 or max_abs <= 1e-5'", text, reason));
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const auto is_sign = [](char c) { return c == '<' || c == '>' || c == '='; };
  while (at < text.size()) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    const bool sign = is_sign(text[at]);
    while (at < text.size() && !is_blank(text[at]) && is_sign(text[at]) == sign) ++at;
    words.push_back(text.substr(begin, at - begin));
  }
  return words;
}

}  // namespace

Tolerance Tolerance::parse(std::string_view text) {
  Tolerance result;
  result.alternatives_.emplace_back();
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) fail(text, "it is empty");
  for (std::size_t at = 0;; ++at) {
    if (at + 3 > words.size()) fail(text, "a condition is a measure, a comparison and a number");
    const auto name = std::find_if(kMeasureNames.begin(), kMeasureNames.end(),
                                   [&](const MeasureName& one) { return one.text == words[at]; });
    if (name == kMeasureNames.end()) {
      fail(text, formatted("'{}' is none of rel, max_abs, mean_abs, cosine, outside, differing", words[at]));
    }
    const std::string_view sign = words[at + 1];
    if (sign != "<=" && sign != "<" && sign != ">=" && sign != ">") {
      fail(text, formatted("'{}' is none of <=, <, >=, >", sign));
    }
    const std::string_view number = words[at + 2];
    double bound = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), bound);
    if (error != std::errc() || stop != number.data() + number.size() || bound != bound) {
      fail(text, formatted("'{}' is no number", number));
    }
    result.alternatives_.back().push_back({name->measure, sign.front() == '<', sign.size() == 1, bound});
    at += 3;
    if (at == words.size()) break;
    if (words[at] == "or") {
      result.alternatives_.emplace_back();
    } else if (words[at] != "and") {
      fail(text, formatted("'{}' stands where 'and' or 'or' is wanted", words[at]));
    }
  }
  for (const std::string_view word : words) result.text_ += (result.text_.empty() ? "" : " ") + std::string(word);
  return result;
}

bool Tolerance::admits(const Measures& measures) const noexcept {
  const auto holds = [&measures](const Condition& condition) {
    const double measured = measures.*condition.measure;
    if (condition.is_upper) return condition.is_strict ? measured < condition.bound : measured <= condition.bound;
    return condition.is_strict ? measured > condition.bound : measured >= condition.bound;
  };
  return std::any_of(alternatives_.begin(), alternatives_.end(), [&holds](const std::vector<Condition>& all) {
    return std::all_of(all.begin(), all.end(), holds);
  });
}

static std::map<at::ScalarType, Tolerance> make_default_tolerances() {
  std::map<at::ScalarType, Tolerance> made;
  for (const Grade& grade : kGrades) made.emplace(grade.dtype, Tolerance::parse(grade.tolerance));
  made.emplace(at::ScalarType::Undefined, Tolerance::parse("differing <= 0"));
  return made;
}

const Tolerance& default_tolerance(at::ScalarType dtype) {
  const auto& table = base::made_once<&make_default_tolerances>();
  const auto found = table.find(dtype);
  return found != table.end() ? found->second : table.at(at::ScalarType::Undefined);
}

at::ScalarType coarser_of(at::ScalarType a, at::ScalarType b) noexcept {
  const Grade* of_a = grade_of(a);
  const Grade* of_b = grade_of(b);
  if (of_a == nullptr || of_b == nullptr) return of_a != nullptr ? a : b;
  if (of_a->unit != of_b->unit) return of_a->unit > of_b->unit ? a : b;
  return of_a->largest < of_b->largest ? a : b;
}

double rounding_of(at::ScalarType dtype) noexcept {
  const Grade* grade = grade_of(dtype);
  return grade == nullptr ? 0 : 2 * grade->unit;
}

double rounding_called(std::string_view dtype_a, std::string_view dtype_b) {
  double rounding = 0;
  for (const Grade& grade : kGrades) {
    const std::string name = base::dtype_name(grade.dtype);
    if (name == dtype_a || name == dtype_b) rounding = std::max(rounding, rounding_of(grade.dtype));
  }
  return rounding;
}

ElementTolerance element_tolerance_of(at::ScalarType dtype) noexcept {
  const Grade* grade = grade_of(dtype);
  return grade == nullptr ? ElementTolerance{} : grade->element;
}

}  // namespace dbg::compare
