// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The program: says in a few lines where two folders of records part. Exit status 0: nowhere, 1: somewhere, 2: unknown.
#include <algorithm>
#include <exception>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "first_difference.h"

namespace {

std::string number(double value) {
  std::ostringstream text;
  text << std::setprecision(2) << value;
  return text.str();
}

std::string index_text(const std::vector<std::int64_t>& at) {
  std::string out = "[";
  for (std::size_t i = 0; i < at.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(at[i]);
  return out + "]";
}

std::string describe(const minilm::RecordPair& pair) {
  const auto& difference = pair.difference;
  if (!difference.compared) return difference.note;
  std::string out = "relative difference " + number(pair.error) + ", largest " + number(difference.max_abs) + " at " +
                    index_text(difference.max_at) + ": " + difference.a_at_max + " against " + difference.b_at_max;
  if (difference.differing == 0) out = "equal values in other bits (0.0 and -0.0, say)";
  return out;
}

void print_unpaired(const char* where, const std::vector<std::string>& labels) {
  if (labels.empty()) return;
  std::cout << "only in the " << where << ": " << labels.size() << " records";
  for (std::size_t i = 0; i < std::min<std::size_t>(labels.size(), 3); ++i) {
    std::cout << (i == 0 ? " (" : ", ") << labels[i];
  }
  std::cout << (labels.size() > 3 ? ", ...)\n" : ")\n");
}

// The records around `center`, one a line.
void print_around(const minilm::RunComparison& runs, std::size_t center) {
  const std::size_t first = center < 3 ? 0 : center - 3;
  const std::size_t last = std::min(runs.pairs.size(), center + 4);
  for (std::size_t i = first; i < last; ++i) {
    const auto& pair = runs.pairs[i];
    std::cout << (i == center ? "  > " : "    ") << std::left << std::setw(36) << pair.label << ' '
              << (pair.difference.same_bits ? "same bits" : number(pair.error)) << '\n';
  }
}

int report(const minilm::RunComparison& runs, const std::string& baseline, const std::string& target) {
  std::cout << "baseline: " << runs.num_baseline << " records in " << baseline << "\n"
            << "target:   " << runs.num_target << " records in " << target << ", " << runs.pairs.size()
            << " of them paired by step, rank, name and tags\n";
  print_unpaired("baseline", runs.only_in_baseline);
  print_unpaired("target", runs.only_in_target);
  if (runs.pairs.empty()) {
    std::cerr << "compare_runs: nothing to compare: no record of the one folder has a partner in the other\n";
    return 2;
  }
  if (!runs.first_other_bits) {
    std::cout << "no difference: all " << runs.pairs.size() << " pairs have the same bits\n";
    return runs.only_in_baseline.empty() && runs.only_in_target.empty() ? 0 : 1;
  }
  const auto& bits = runs.pairs[*runs.first_other_bits];
  std::cout << "first other bits: " << bits.label << "\n    " << describe(bits) << '\n';
  if (!runs.first_jump) {
    double largest = 0;
    for (const auto& pair : runs.pairs) largest = std::max(largest, pair.error);
    std::cout << "first jump: none; the difference grows evenly, to at most " << number(largest)
              << ", as rounding does\n";
    return 1;
  }
  const auto& jump = runs.pairs[*runs.first_jump];
  std::cout << "first jump: " << jump.label << "\n    " << describe(jump) << "\n    " << number(jump.growth)
            << " times any difference before it, or one rounding\n";
  print_around(runs, *runs.first_jump);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: compare_runs BASELINE TARGET (two folders of records)\n";
    return 2;
  }
  try {
    return report(minilm::compare_runs(argv[1], argv[2]), argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "compare_runs: " << error.what() << '\n';
    return 2;
  }
}
