// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Pairs the records of two folders by their file names and follows the error from pair to pair.
#include "first_difference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "dbg/dump_record.h"

namespace minilm {
namespace {

constexpr double kJumpGrowth = 5;

struct Record {
  std::string path;
  std::string label;
  std::string key;  // what pairs it
};

// `folder/key=value___key=value.pt` to its pairs.
std::vector<std::pair<std::string, std::string>> pairs_of(const std::string& path) {
  std::string_view rest = path;
  rest.remove_prefix(rest.rfind('/') + 1);
  rest.remove_suffix(std::string_view(".pt").size());
  std::vector<std::pair<std::string, std::string>> out;
  while (true) {
    const std::size_t end = rest.find("___");
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    out.emplace_back(pair.substr(0, equals), pair.substr(std::min(equals + 1, pair.size())));
    if (end == std::string_view::npos) return out;
    rest.remove_prefix(end + 3);
  }
}

std::vector<Record> records_in(const std::string& folder) {
  std::vector<Record> out;
  std::map<std::string, int> seen;
  for (const std::string& path : dbg::list_records(folder)) {
    std::string name;
    std::string tags;
    std::string step;
    std::map<std::string, std::string> facts;  // sorted: the order of tags is no difference
    for (auto& [key, value] : pairs_of(path)) {
      if (key == "dump_index") continue;
      if (key == "name") {
        name = value;
      } else if (key == "step") {
        step = value;
      } else if (!(key == "recompute_status" && value == "disabled") && !(key == "rank" && value == "0")) {
        tags += " " + key + "=" + value;
      }
      facts.emplace(std::move(key), std::move(value));
    }
    std::string key;
    for (const auto& [k, v] : facts) key += k + "=" + v + "\n";
    const int nth = seen[key]++;
    Record record{path, "step=" + step + " " + name + tags, key + std::to_string(nth)};
    if (nth > 0) record.label += " (number " + std::to_string(nth + 1) + ")";
    out.push_back(std::move(record));
  }
  return out;
}

dbg::TensorDiff difference_of(const std::string& baseline_path, const std::string& target_path) {
  const c10::IValue baseline = dbg::read_record(baseline_path).value;
  const c10::IValue target = dbg::read_record(target_path).value;
  if (baseline.isTensor() && target.isTensor()) return dbg::diff(baseline.toTensor(), target.toTensor());
  dbg::TensorDiff out;
  out.note = "not two tensors, but " + baseline.tagKind() + " and " + target.tagKind();
  return out;
}

// The error that one rounding makes; below it nothing is a jump. Integers round nothing.
double rounding_of(const std::string& dtype) {
  if (dtype == "float64" || dtype == "complex128") return 2.3e-16;
  if (dtype == "float32" || dtype == "complex64") return 1.2e-7;
  if (dtype == "float16" || dtype == "complex32") return 9.8e-4;
  if (dtype == "bfloat16") return 7.9e-3;
  if (dtype.compare(0, 6, "float8") == 0) return 0.13;
  return 0;
}

}  // namespace

RunComparison compare_runs(const std::string& baseline_folder, const std::string& target_folder) {
  const std::vector<Record> baseline = records_in(baseline_folder);
  const std::vector<Record> target = records_in(target_folder);
  std::map<std::string, const Record*> targets;
  for (const Record& record : target) targets.emplace(record.key, &record);

  RunComparison out;
  out.num_baseline = baseline.size();
  out.num_target = target.size();
  double largest_before = 0;
  for (const Record& record : baseline) {
    const auto partner = targets.find(record.key);
    if (partner == targets.end()) {
      out.only_in_baseline.push_back(record.label);
      continue;
    }
    RecordPair pair{record.label, record.path, partner->second->path, {}, 0, 0};
    targets.erase(partner);
    pair.difference = difference_of(pair.baseline_path, pair.target_path);
    pair.error = std::sqrt(2 * pair.difference.rel_diff);
    const double rounding = std::max(rounding_of(pair.difference.dtype_a), rounding_of(pair.difference.dtype_b));
    if (pair.error > 0) pair.growth = pair.error / std::max(largest_before, rounding);
    largest_before = std::max(largest_before, pair.error);
    if (!out.first_other_bits && !pair.difference.same_bits) out.first_other_bits = out.pairs.size();
    if (!out.first_jump && pair.growth > kJumpGrowth) out.first_jump = out.pairs.size();
    out.pairs.push_back(std::move(pair));
  }
  for (const Record& record : target) {
    if (targets.count(record.key) > 0) out.only_in_target.push_back(record.label);
  }
  return out;
}

}  // namespace minilm
