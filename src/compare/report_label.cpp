// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Labels shared by the reports.
#include "compare/report_label.h"

#include <fmt/ranges.h>

#include "base/formatted.h"

namespace dbg::compare {

std::string ranks_label(const std::vector<int>& ranks) {
  return formatted("{}", fmt::join(ranks, ","));
}

std::string coordinate_label(const std::vector<std::int64_t>& coordinate) {
  return formatted("[{}]", fmt::join(coordinate, ", "));
}

std::string name_label(const PairReport& pair) {
  return pair.name + pair.part + (pair.tags.empty() ? "" : " " + pair.tags);
}

std::string pair_label(const PairReport& pair) {
  return formatted("step={} rank={} {}", pair.step, ranks_label(pair.baseline_ranks), name_label(pair));
}

std::string number_label(double value) {
  if (value == 0) return "0";
  return value != value ? "nan" : formatted("{:.2e}", value);
}

std::string difference_label(const PairReport& pair) {
  const TensorDiff& difference = pair.difference;
  if (!difference.compared) return pair.reason.empty() ? difference.note : pair.reason;
  if (difference.same_bits) return "same bits";
  std::string line;
  if (const std::int64_t nans = difference.nan_only_in_a + difference.nan_only_in_b; nans > 0) {
    line += formatted("NaN on one side only: {} in the baseline, {} in the target; ", difference.nan_only_in_a,
                      difference.nan_only_in_b);
  }
  if (difference.inf_unequal > 0) line += formatted("unequal infinities: {}; ", difference.inf_unequal);
  if (!difference.same_dtype) line += formatted("{} against {}: ", difference.dtype_a, difference.dtype_b);
  if (difference.differing == 0) return line + "equal values in other bits (0.0 and -0.0, or NaNs, or dtypes)";
  line += formatted("{} of {} elements differ", difference.differing, difference.elements);
  if (!difference.a_at_max.empty()) {
    line += formatted(", the most at {}: {} against {}", coordinate_label(difference.max_at), difference.a_at_max,
                      difference.b_at_max);
  }
  line += formatted("; rel_diff {} max_abs {} mean_abs {} cosine {:.9g}", number_label(difference.rel_diff),
                    number_label(difference.max_abs), number_label(difference.mean_abs), pair.cosine);
  if (pair.cast) {
    line += formatted("; both cast to {}: rel_diff {} max_abs {}", pair.cast->dtype, number_label(pair.cast->rel_diff),
                      number_label(pair.cast->max_abs));
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
      out += formatted("\\x{:02x}", is_long_control ? static_cast<unsigned char>(text[++i]) : byte);
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string summary_line(const CompareReport& report) {
  std::string line = formatted("{} pairs: {} same bits, {} passed, {} failed, {} skipped", report.pairs.size(),
                               report.count(Verdict::same_bits), report.count(Verdict::passed),
                               report.count(Verdict::failed), report.count(Verdict::skipped));
  if (!report.unpaired.empty()) line += formatted("; {} without partner", report.unpaired.size());
  if (!report.unreadable.empty()) line += formatted("; {} unreadable", report.unreadable.size());
  return line + formatted(" ({:.2f} s)", report.seconds);
}

}  // namespace dbg::compare
