// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The page's data, and its way into the page.
#include "compare/report_html.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/formatted.h"
#include "compare/json_number.h"
#include "compare/report_label.h"
#include "dbg/version.h"

namespace dbg::compare {
namespace {

using Json = nlohmann::ordered_json;

// One character a cell: 0 for no difference, then by the logarithm over six decades up to the largest, the last
// character for what is not finite.
Json heat_of(const TensorPicture& picture) {
  constexpr std::string_view kLevels = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
  constexpr double kDecades = 6;
  const auto top = static_cast<double>(kLevels.size() - 2);
  double largest = 0;
  for (const float cell : picture.heat) {
    if (std::isfinite(cell)) largest = std::max(largest, static_cast<double>(cell));
  }
  std::string cells;
  for (const float cell : picture.heat) {
    double level = 0;
    if (!std::isfinite(cell)) {
      level = top + 1;
    } else if (cell > 0) {
      const double decades = std::log10(static_cast<double>(cell) / largest) + kDecades;
      level = std::clamp(std::ceil(decades / kDecades * top), 1.0, top);
    }
    cells.push_back(kLevels[static_cast<std::size_t>(level)]);
  }
  return {{"cells", cells},
          {"rows", picture.heat_rows},
          {"columns", picture.heat_columns},
          {"row_label", picture.row_label},
          {"column_label", picture.column_label},
          {"largest", json_number(largest)}};
}

Json picture_of(const TensorPicture& picture) {
  return {{"heat", heat_of(picture)},
          {"low", json_number(picture.low)},
          {"high", json_number(picture.high)},
          {"baseline_histogram", picture.baseline_histogram},
          {"target_histogram", picture.target_histogram},
          {"baseline_corner", picture.baseline_corner},
          {"target_corner", picture.target_corner}};
}

Json percentiles_of(const PairReport& pair) {
  Json rows = Json::array();
  const auto add = [&rows](const char* name, const std::optional<Percentiles>& values) {
    if (!values) return;
    Json row = Json::array({name});
    for (const double value : *values) row.push_back(json_number(value));
    rows.push_back(std::move(row));
  };
  add("baseline", pair.baseline_percentiles);
  add("target", pair.target_percentiles);
  add("|difference|", pair.difference_percentiles);
  return rows;
}

std::string shapes_of(const PairReport& pair) {
  const TensorDiff& difference = pair.difference;
  if (difference.dtype_a.empty()) return "";
  std::string text = difference.dtype_a + coordinate_label(difference.shape_a);
  const std::string other = difference.dtype_b + coordinate_label(difference.shape_b);
  return text == other ? text : text + " against " + other;
}

// Same bits are drawn below everything: no rel_diff.
Json rel_diff_of(const PairReport& pair) {
  if (!pair.difference.compared) return nullptr;
  return json_number(pair.difference.rel_diff);
}

Json pair_of(const PairReport& pair) {
  Json json = {{"name", pair.name + pair.part},
               {"tags", pair.tags},
               {"step", pair.step},
               {"rank", ranks_label(pair.baseline_ranks)},
               {"verdict", to_text(pair.verdict)},
               {"rel", rel_diff_of(pair)},
               {"abs", pair.difference.compared ? json_number(pair.difference.max_abs) : Json()},
               {"outside", json_number(pair.outside_fraction)},
               {"growth", json_number(pair.growth)},
               {"why", pair.reason},
               {"tolerance", pair.tolerance}};
  if (pair.verdict == Verdict::same_bits) return json;
  json["difference"] = difference_label(pair);
  json["shapes"] = shapes_of(pair);
  json["note"] = pair.note;
  json["target_name"] = pair.target_name;
  json["target_rank"] = ranks_label(pair.target_ranks);
  json["files"] = {pair.baseline_files.empty() ? "" : pair.baseline_files.front(),
                   pair.target_files.empty() ? "" : pair.target_files.front()};
  json["percentiles"] = percentiles_of(pair);
  if (pair.picture != nullptr) json["picture"] = picture_of(*pair.picture);
  return json;
}

Json landmark_of(const CompareReport& report, const std::optional<Landmark>& found) {
  if (!found) return nullptr;
  const PairReport& pair = report.pairs[found->pair];
  return {{"pair", found->pair},
          {"label", pair_label(pair)},
          {"difference", difference_label(pair)},
          {"good", found->last_good ? Json(pair_label(report.pairs[*found->last_good])) : Json()}};
}

Json data_of(const CompareReport& report) {
  Json pairs = Json::array();
  for (const PairReport& pair : report.pairs) pairs.push_back(pair_of(pair));
  Json unpaired = Json::array();
  for (const UnpairedReport& one : report.unpaired) {
    unpaired.push_back(formatted("only in the {}: step={} rank={} {}{}: {}", one.side, one.step, ranks_label(one.ranks),
                                 one.name, one.tags.empty() ? "" : " " + one.tags, one.reason));
  }
  Json unreadable = Json::array();
  for (const UnreadableReport& one : report.unreadable) unreadable.push_back(one.cause);
  return {{"version", version()},
          {"baseline", formatted("{} ({} records)", report.baseline, report.baseline_records)},
          {"target", formatted("{} ({} records)", report.target, report.target_records)},
          {"noise", report.noise},
          {"notes", report.notes},
          {"summary", summary_line(report)},
          {"first_bits", landmark_of(report, report.divergence.first_bits)},
          {"first_beyond", landmark_of(report, report.divergence.first_beyond)},
          {"first_jump", landmark_of(report, report.divergence.first_jump)},
          {"percents", kPercentiles},
          {"pairs", std::move(pairs)},
          {"unpaired", std::move(unpaired)},
          {"unreadable", std::move(unreadable)}};
}

}  // namespace

std::string json_for_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    const bool is_separator =
        json.substr(i, 2) == "\xe2\x80" && i + 2 < json.size() && (json[i + 2] == '\xa8' || json[i + 2] == '\xa9');
    if (c == '<' || c == '>' || c == '&') {
      out += formatted("\\u{:04x}", static_cast<unsigned>(c));
    } else if (is_separator) {
      out += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string report_html(const CompareReport& report) {
  constexpr std::string_view kMark = "@DATA@";
  const std::string data = json_for_script(data_of(report).dump(-1, ' ', false, Json::error_handler_t::replace));
  const std::string_view page = page_template();
  const std::size_t at = page.find(kMark);
  std::string out(page.substr(0, at));
  out += data;
  out += page.substr(at + kMark.size());
  return out;
}

}  // namespace dbg::compare
