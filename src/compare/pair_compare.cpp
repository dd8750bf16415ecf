// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The way of one pair.
#include "compare/pair_compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "compare/align.h"
#include "compare/metrics.h"
#include "compare/picture.h"
#include "compare/unshard.h"
#include "compare/value_equality.h"
#include "dbg/error.h"

namespace dbg::compare {
namespace {

using PartsByName = std::vector<std::pair<std::string, std::vector<RankValue>>>;

double error_of(const TensorDiff& difference) {
  return std::sqrt(2 * difference.rel_diff);
}

// The parts of all ranks, in the order of the first that has them.
PartsByName parts_of_all(const std::vector<RankValue>& values) {
  PartsByName parts;
  for (const RankValue& value : values) {
    for (PartOfRank& part : parts_of(value)) {
      auto found = std::find_if(parts.begin(), parts.end(), [&](const auto& one) { return one.first == part.part; });
      if (found == parts.end()) found = parts.insert(parts.end(), {part.part, {}});
      found->second.push_back(std::move(part.value));
    }
  }
  return parts;
}

// Compares one pair of values within a bundle.
class ValueComparison {
 public:
  ValueComparison(const PairContext& context, PairReport report) : context_(context), report_(std::move(report)) {}

  PairReport run(JoinedPair& pair, const c10::IValue* noise) {
    report_.baseline_ranks = pair.baseline.ranks;
    report_.target_ranks = pair.target.ranks;
    report_.note = pair.note;
    for (Joined* side : {&pair.baseline, &pair.target}) {
      report_.odd_replicas.insert(report_.odd_replicas.end(), side->odd_replicas.begin(), side->odd_replicas.end());
    }
    if (!pair.cause.empty()) return skip(pair.cause);
    for (const Joined* side : {&pair.baseline, &pair.target}) {
      if (!side->left_out.empty()) return skip("not all of it can be read: " + side->left_out);
    }
    const c10::IValue& a = pair.baseline.value;
    const c10::IValue& b = pair.target.value;
    if (a.isTensor() && b.isTensor()) {
      compare_tensors(pair, noise);
    } else {
      compare_values(a, b);
    }
    judge_replicas();
    return std::move(report_);
  }

 private:
  PairReport skip(const std::string& reason) {
    report_.verdict = Verdict::skipped;
    report_.reason = reason;
    report_.is_fault = true;
    return std::move(report_);
  }

  void add_note(const std::string& note) { report_.note += (report_.note.empty() ? "" : "; ") + note; }

  void settle(Verdict verdict, std::string reason) {
    report_.verdict = verdict;
    report_.reason = std::move(reason);
  }

  void compare_values(const c10::IValue& a, const c10::IValue& b) {
    const bool is_equal = are_equal(a, b);
    report_.difference.note = "no tensors";
    report_.tolerance = "equal";
    settle(is_equal ? Verdict::same_bits : Verdict::failed,
           is_equal ? "" : formatted("{} against {}", value_text(a), value_text(b)));
  }

  void compare_tensors(const JoinedPair& pair, const c10::IValue* noise) {
    const Aligned aligned =
        align(pair.baseline.value.toTensor(), pair.baseline.dims, pair.target.value.toTensor(), pair.target.dims);
    if (!aligned.note.empty()) add_note(aligned.note);
    TensorDiff& difference = report_.difference;
    difference = diff(aligned.a, aligned.b);
    if (!difference.compared) {
      const bool has_shapes = difference.shape_a != difference.shape_b;
      settle(has_shapes ? Verdict::failed : Verdict::skipped, difference.note);
      report_.is_fault = !has_shapes;
      return;
    }
    const TensorMetrics metrics = measure(aligned.a, aligned.b, difference);
    report_.cosine = metrics.cosine;
    report_.outside_fraction = metrics.outside_fraction;
    report_.baseline_percentiles = metrics.a_percentiles;
    report_.target_percentiles = metrics.b_percentiles;
    report_.difference_percentiles = metrics.difference_percentiles;
    report_.cast = metrics.cast;
    report_.error = error_of(difference);
    if (noise != nullptr && noise->isTensor()) {
      const Aligned second = align(aligned.a, std::nullopt, noise->toTensor(), std::nullopt);
      const TensorDiff floor = diff(second.a, second.b);
      if (!floor.compared || !std::isfinite(error_of(floor))) {
        add_note("the second trusted run has no measure here: " + (floor.compared ? to_text(floor) : floor.note));
      } else {
        report_.noise_error = error_of(floor);
      }
    }
    judge(aligned, metrics);
    if (report_.verdict == Verdict::failed && context_.pictures != nullptr &&
        context_.pictures->fetch_add(1) < context_.max_pictures) {
      report_.picture = draw(aligned.a, aligned.b, metrics.low, metrics.high, aligned.labels);
    }
  }

  void judge(const Aligned& aligned, const TensorMetrics& metrics) {
    const TensorDiff& difference = report_.difference;
    const at::ScalarType coarser = coarser_of(aligned.a.scalar_type(), aligned.b.scalar_type());
    const Tolerance* rule = context_.rules.tolerance_of(report_.name);
    if (report_.noise_error && rule == nullptr) {
      const double floor = std::max(*report_.noise_error, rounding_of(coarser));
      report_.tolerance = formatted("{:g} times the noise of {:.2g}", context_.noise_factor, floor);
      report_.is_below_noise = report_.error <= context_.noise_factor * floor;
      const double times = floor > 0 ? report_.error / floor : 0;
      if (difference.same_bits) return settle(Verdict::same_bits, "");
      return settle(report_.is_below_noise ? Verdict::passed : Verdict::failed,
                    report_.is_below_noise ? formatted("below the noise: {:.2g} of it", times)
                                           : formatted("{:.3g} times the noise{}", times, oddities_of(difference)));
    }
    const Tolerance& tolerance = rule != nullptr ? *rule : default_tolerance(coarser);
    report_.tolerance = tolerance.text();
    if (difference.same_bits) return settle(Verdict::same_bits, "");
    if (tolerance.admits(measures_of(difference, metrics))) {
      return settle(Verdict::passed, difference.same_values() ? "equal values in other bits" : "within tolerance");
    }
    settle(Verdict::failed, formatted("beyond {}{}", tolerance.text(), oddities_of(difference)));
  }

  // NaN and infinities first: they explain the rest.
  static std::string oddities_of(const TensorDiff& difference) {
    std::string text;
    if (const std::int64_t a = difference.nan_only_in_a, b = difference.nan_only_in_b; a + b > 0) {
      text += formatted("; NaN on one side only: {} in the baseline, {} in the target", a, b);
    }
    if (difference.inf_unequal > 0) text += formatted("; unequal infinities: {}", difference.inf_unequal);
    return text;
  }

  void judge_replicas() {
    if (report_.odd_replicas.empty()) return;
    const OddReplica& odd = report_.odd_replicas.front();
    const std::string text = formatted("{}: rank {} holds another value than rank {}, its replica over {} ({})",
                                       odd.side, odd.odd_rank, odd.reference_rank, odd.axis, to_text(odd.difference));
    report_.reason = report_.verdict == Verdict::failed ? text + "; " + report_.reason : text;
    report_.verdict = Verdict::failed;
  }

  const PairContext& context_;
  PairReport report_;
};

class PairComparison {
 public:
  PairComparison(const PairJob& job, const PairContext& context) : job_(job), context_(context) {
    const RecordDescriptor& baseline = job.baseline.front()->descriptor;
    const RecordDescriptor& target = job.target.front()->descriptor;
    blank_.name = baseline.name;
    blank_.target_name = target.name;
    blank_.tags = tags_text(baseline.tags);
    blank_.step = baseline.step;
    blank_.target_step = target.step;
    for (const RecordFile* file : job.baseline) blank_.baseline_files.push_back(file->path);
    for (const RecordFile* file : job.target) blank_.target_files.push_back(file->path);
  }

  PairOutcome run() {
    if (const auto cause = base::run_fenced([this] { compare(); })) add_skipped("", *cause);
    return std::move(outcome_);
  }

 private:
  void compare() {
    std::vector<RankValue> baseline = load_all(job_.baseline, Side::baseline, context_.baseline_lengths);
    std::vector<RankValue> target = load_all(job_.target, Side::target, context_.target_lengths);
    if (!outcome_.unreadable.empty()) {
      add_skipped("", "unreadable: " + outcome_.unreadable.front().cause);
      return;
    }
    blank_.dims = baseline.front().dims_text;
    const std::vector<JoinedPair> noise = noise_of(baseline);
    PartsByName baseline_parts = parts_of_all(baseline);
    PartsByName target_parts = parts_of_all(target);
    baseline.clear();
    target.clear();
    for (auto& [part, values] : baseline_parts) {
      const auto other = std::find_if(target_parts.begin(), target_parts.end(),
                                      [&name = part](const auto& one) { return one.first == name; });
      if (other == target_parts.end()) {
        add_failed(part, "the target's value has no such part");
        continue;
      }
      compare_part(part, std::move(values), std::move(other->second), noise);
      target_parts.erase(other);
    }
    for (const auto& [part, values] : target_parts) add_failed(part, "the baseline's value has no such part");
    if (outcome_.reports.empty()) {  // two empty containers
      PairReport report = blank_;
      report.verdict = Verdict::same_bits;
      outcome_.reports.push_back(std::move(report));
    }
  }

  void compare_part(const std::string& part, std::vector<RankValue> baseline, std::vector<RankValue> target,
                    const std::vector<JoinedPair>& noise) {
    for (JoinedPair& pair : join_ranks(baseline, target)) {
      PairReport report = blank_;
      report.part = part;
      const c10::IValue* floor = nullptr;
      for (const JoinedPair& one : noise) {
        if (part.empty() && one.cause.empty() && one.baseline.ranks == pair.baseline.ranks) floor = &one.target.value;
      }
      outcome_.reports.push_back(ValueComparison(context_, std::move(report)).run(pair, floor));
    }
  }

  // What the second trusted run holds, joined as the baseline is.
  std::vector<JoinedPair> noise_of(const std::vector<RankValue>& baseline) {
    if (job_.noise.empty()) return {};
    std::vector<RankValue> noise = load_all(job_.noise, Side::baseline, context_.noise_lengths);
    if (noise.size() != job_.noise.size()) return {};
    return join_ranks(baseline, std::move(noise));
  }

  std::vector<RankValue> load_all(const std::vector<const RecordFile*>& files, Side side,
                                  const SequenceLengths* lengths) {
    std::vector<RankValue> values;
    for (const RecordFile* file : files) {
      try {
        RankValue value = load(*file, side, blank_.name, context_.rules, context_.windowed_above_bytes);
        if (lengths != nullptr && value.dims && needs_sequence_lengths(*value.dims, value.place)) {
          value.sequence_lengths = lengths->of(file->descriptor.step, value.rank);
        }
        values.push_back(std::move(value));
      } catch (const IoError& error) {
        outcome_.unreadable.push_back({file->path, error.what()});
      } catch (const ConfigError& error) {
        outcome_.unreadable.push_back({file->path, formatted("'{}': {}", file->path, error.what())});
      }
    }
    return values;
  }

  void add_skipped(const std::string& part, const std::string& reason) {
    PairReport report = blank_;
    report.part = part;
    report.reason = reason;
    report.is_fault = true;
    for (const RecordFile* file : job_.baseline) report.baseline_ranks.push_back(file->descriptor.rank);
    for (const RecordFile* file : job_.target) report.target_ranks.push_back(file->descriptor.rank);
    outcome_.reports.push_back(std::move(report));
  }

  void add_failed(const std::string& part, const std::string& reason) {
    add_skipped(part, reason);
    outcome_.reports.back().verdict = Verdict::failed;
    outcome_.reports.back().is_fault = false;
  }

  const PairJob& job_;
  const PairContext& context_;
  PairReport blank_;
  PairOutcome outcome_;
};

}  // namespace

PairOutcome compare_pair(const PairJob& job, const PairContext& context) {
  return PairComparison(job, context).run();
}

std::string tags_text(const Tags& tags) {
  std::string text;
  for (const auto& [key, value] : tags) {
    const std::string shown = python_text(value.view());
    if (key == "recompute_status" && shown == "disabled") continue;
    text += formatted("{}{}={}", text.empty() ? "" : " ", key, shown);
  }
  return text;
}

}  // namespace dbg::compare
