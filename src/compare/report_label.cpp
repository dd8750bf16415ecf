// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Labels shared by the reports.
#include "compare/report_label.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dbg::compare {

std::string ranks_label(const std::vector<int>& ranks) {
  return fmt::format("{}", fmt::join(ranks, ","));
}

std::string coordinate_label(const std::vector<std::int64_t>& coordinate) {
  return fmt::format("[{}]", fmt::join(coordinate, ", "));
}

std::string name_label(const PairReport& pair) {
  return pair.name + pair.part + (pair.tags.empty() ? "" : " " + pair.tags);
}

std::string pair_label(const PairReport& pair) {
  return fmt::format("step={} rank={} {}", pair.step, ranks_label(pair.baseline_ranks), name_label(pair));
}

std::string number_label(double value) {
  if (value == 0) return "0";
  return value != value ? "nan" : fmt::format("{:.2e}", value);
}

std::string difference_label(const PairReport& pair) {
  const TensorDiff& difference = pair.difference;
  if (!difference.compared) return pair.reason.empty() ? difference.note : pair.reason;
  if (difference.same_bits) return "same bits";
  std::string line;
  if (const std::int64_t nans = difference.nan_only_in_a + difference.nan_only_in_b; nans > 0) {
    line += fmt::format("NaN on one side only: {} in the baseline, {} in the target; ", difference.nan_only_in_a,
                        difference.nan_only_in_b);
  }
  if (difference.inf_unequal > 0) line += fmt::format("{} unequal infinities; ", difference.inf_unequal);
  if (!difference.same_dtype) line += fmt::format("{} against {}: ", difference.dtype_a, difference.dtype_b);
  if (difference.differing == 0) return line + "equal values in other bits (0.0 and -0.0, or NaNs, or dtypes)";
  line += fmt::format("{} of {} elements differ", difference.differing, difference.elements);
  if (!difference.a_at_max.empty()) {
    line += fmt::format(", the most at {}: {} against {}", coordinate_label(difference.max_at), difference.a_at_max,
                        difference.b_at_max);
  }
  line += fmt::format("; rel_diff {} max_abs {} mean_abs {} cosine {:.9g}", number_label(difference.rel_diff),
                      number_label(difference.max_abs), number_label(difference.mean_abs), pair.cosine);
  if (pair.cast) {
    line += fmt::format("; both cast to {}: rel_diff {} max_abs {}", pair.cast->dtype,
                        number_label(pair.cast->rel_diff), number_label(pair.cast->max_abs));
  }
  return line;
}

std::string safe_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, two bytes in UTF-8, are control characters of terminals, too.
    const bool is_long_control =
        byte == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (byte < 0x20 || byte == 0x7f || is_long_control) {
      out += fmt::format("\\x{:02x}", is_long_control ? static_cast<unsigned char>(text[++i]) : byte);
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string summary_line(const CompareReport& report) {
  std::string line = fmt::format("{} pairs: {} same bits, {} passed, {} failed, {} skipped", report.pairs.size(),
                                 report.count(Verdict::same_bits), report.count(Verdict::passed),
                                 report.count(Verdict::failed), report.count(Verdict::skipped));
  if (!report.unpaired.empty()) line += fmt::format("; {} without partner", report.unpaired.size());
  if (!report.unreadable.empty()) line += fmt::format("; {} unreadable", report.unreadable.size());
  return line + fmt::format(" ({:.2f} s)", report.seconds);
}

}  // namespace dbg::compare
