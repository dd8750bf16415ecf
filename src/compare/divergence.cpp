// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Finds the landmarks of a run and of each of its steps.
#include "compare/divergence.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compare/tolerance.h"

namespace dbg::compare {
namespace {

// The least error that means something: one rounding of the coarser dtype, or what a trusted run differs by.
double floor_of(const PairReport& pair) {
  return std::max(rounding_called(pair.difference.dtype_a, pair.difference.dtype_b), pair.noise_error.value_or(0));
}

// Follows a run from its beginning.
class Follower {
 public:
  explicit Follower(Divergence& found) : found_(found) {}

  /// Returns the growth of the pair's error.
  double see(std::size_t at, const PairReport& pair) {
    const bool is_same = pair.verdict == Verdict::same_bits;
    if (!is_same && pair.verdict != Verdict::skipped && !found_.first_bits) found_.first_bits = {at, last_same_};
    if (pair.verdict == Verdict::failed && !found_.first_beyond) found_.first_beyond = {at, last_passed_};
    double growth = 0;
    // A pair that could not be measured (other shapes, say) is a break of its own, not a growth.
    if (pair.difference.compared && pair.error > 0) {
      growth = std::isinf(pair.error) && std::isinf(largest_) ? 1 : pair.error / std::max(largest_, floor_of(pair));
      largest_ = std::max(largest_, pair.error);
    }
    if (growth > kJumpGrowth && !found_.first_jump) found_.first_jump = {at, last_measured_};
    if (is_same) last_same_ = at;
    if (is_same || pair.verdict == Verdict::passed) last_passed_ = at;
    if (pair.difference.compared) last_measured_ = at;
    return growth;
  }

 private:
  Divergence& found_;
  double largest_ = 0;
  std::optional<std::size_t> last_same_;
  std::optional<std::size_t> last_passed_;
  std::optional<std::size_t> last_measured_;
};

void count(StepReport& step, Verdict verdict) {
  ++step.pairs;
  switch (verdict) {
    case Verdict::same_bits:
      ++step.same_bits;
      return;
    case Verdict::passed:
      ++step.passed;
      return;
    case Verdict::failed:
      ++step.failed;
      return;
    case Verdict::skipped:
      ++step.skipped;
      return;
  }
}

}  // namespace

void follow_error(CompareReport& report) {
  report.divergence = {};
  report.steps.clear();
  Follower overall(report.divergence);
  for (std::size_t at = 0; at < report.pairs.size(); ++at) {
    report.pairs[at].growth = overall.see(at, report.pairs[at]);
  }
  for (std::size_t at = 0; at < report.pairs.size();) {
    StepReport step;
    step.step = report.pairs[at].step;
    Follower within(step.divergence);
    for (; at < report.pairs.size() && report.pairs[at].step == step.step; ++at) {
      within.see(at, report.pairs[at]);
      count(step, report.pairs[at].verdict);
    }
    report.steps.push_back(std::move(step));
  }
}

}  // namespace dbg::compare
