// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes a report as JSON.
#include "compare/report_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/formatted.h"
#include "compare/json_number.h"
#include "dbg/version.h"

namespace dbg::compare {
namespace {

// Keys keep the order in which they are written here.
using Json = nlohmann::ordered_json;

// NaN stands for "not known" in these.
Json known(double value) {
  return std::isnan(value) ? Json() : json_number(value);
}

Json landmark(const std::optional<Landmark>& found) {
  if (!found) return nullptr;
  return {{"pair", found->pair}, {"last_good", found->last_good ? Json(*found->last_good) : Json()}};
}

Json divergence(const Divergence& found) {
  return {{"first_bits", landmark(found.first_bits)},
          {"first_beyond", landmark(found.first_beyond)},
          {"first_jump", landmark(found.first_jump)}};
}

Json percentiles(const std::optional<Percentiles>& values) {
  if (!values) return nullptr;
  Json json = Json::object();
  for (std::size_t i = 0; i < kPercentiles.size(); ++i) {
    json[formatted("p{}", kPercentiles[i])] = json_number((*values)[i]);
  }
  return json;
}

Json difference(const TensorDiff& diff) {
  Json json = {{"compared", diff.compared},
               {"baseline_shape", diff.shape_a},
               {"target_shape", diff.shape_b},
               {"baseline_dtype", diff.dtype_a},
               {"target_dtype", diff.dtype_b}};
  if (!diff.compared) {
    json["note"] = diff.note;
    return json;
  }
  json["same_bits"] = diff.same_bits;
  json["elements"] = diff.elements;
  json["differing"] = diff.differing;
  json["rel_diff"] = json_number(diff.rel_diff);
  json["max_abs"] = json_number(diff.max_abs);
  json["mean_abs"] = json_number(diff.mean_abs);
  json["max_at"] = diff.a_at_max.empty() ? Json() : Json(diff.max_at);
  json["baseline_at_max"] = diff.a_at_max.empty() ? Json() : Json(diff.a_at_max);
  json["target_at_max"] = diff.b_at_max.empty() ? Json() : Json(diff.b_at_max);
  json["first_bits_at"] = diff.same_bits || !diff.same_dtype ? Json() : Json(diff.first_bits_at);
  json["nan_in_both"] = diff.nan_in_both;
  json["nan_only_in_baseline"] = diff.nan_only_in_a;
  json["nan_only_in_target"] = diff.nan_only_in_b;
  json["inf_in_both"] = diff.inf_in_both;
  json["inf_unequal"] = diff.inf_unequal;
  return json;
}

Json odd_replica(const OddReplica& odd) {
  return {{"side", odd.side},
          {"axis", odd.axis},
          {"reference_rank", odd.reference_rank},
          {"odd_rank", odd.odd_rank},
          {"difference", difference(odd.difference)}};
}

Json pair_json(const PairReport& pair, std::size_t at) {
  Json json = {{"index", at},
               {"name", pair.name},
               {"target_name", pair.target_name},
               {"part", pair.part},
               {"tags", pair.tags},
               {"step", pair.step},
               {"target_step", pair.target_step},
               {"baseline_ranks", pair.baseline_ranks},
               {"target_ranks", pair.target_ranks},
               {"baseline_files", pair.baseline_files},
               {"target_files", pair.target_files},
               {"dims", pair.dims.empty() ? Json() : Json(pair.dims)},
               {"verdict", to_text(pair.verdict)},
               {"reason", pair.reason},
               {"tolerance", pair.tolerance},
               {"note", pair.note},
               {"is_fault", pair.is_fault},
               {"difference", difference(pair.difference)},
               {"cosine", known(pair.cosine)},
               {"outside_fraction", known(pair.outside_fraction)},
               {"error", known(pair.error)},
               {"growth", json_number(pair.growth)},
               {"noise_error", pair.noise_error ? json_number(*pair.noise_error) : Json()},
               {"is_below_noise", pair.is_below_noise},
               {"baseline_percentiles", percentiles(pair.baseline_percentiles)},
               {"target_percentiles", percentiles(pair.target_percentiles)},
               {"difference_percentiles", percentiles(pair.difference_percentiles)}};
  json["cast"] = pair.cast ? Json{{"dtype", pair.cast->dtype},
                                  {"differing", pair.cast->differing},
                                  {"rel_diff", json_number(pair.cast->rel_diff)},
                                  {"max_abs", json_number(pair.cast->max_abs)}}
                           : Json();
  Json odd = Json::array();
  for (const OddReplica& one : pair.odd_replicas) odd.push_back(odd_replica(one));
  json["odd_replicas"] = std::move(odd);
  return json;
}

Json summary(const CompareReport& report) {
  Json json = {{"baseline", report.baseline},
               {"target", report.target},
               {"noise", report.noise.empty() ? Json() : Json(report.noise)},
               {"baseline_records", report.baseline_records},
               {"target_records", report.target_records},
               {"pairs", report.pairs.size()},
               {"same_bits", report.count(Verdict::same_bits)},
               {"passed", report.count(Verdict::passed)},
               {"failed", report.count(Verdict::failed)},
               {"skipped", report.count(Verdict::skipped)},
               {"unpaired", report.unpaired.size()},
               {"unreadable", report.unreadable.size()},
               {"exit_code", report.exit_code()},
               {"seconds", report.seconds},
               {"notes", report.notes}};
  json.update(divergence(report.divergence));
  return json;
}

}  // namespace

std::string report_json(const CompareReport& report) {
  Json json = {{"format", "dbg compare"}, {"version", 1}, {"dbg_version", version()}, {"summary", summary(report)}};
  Json pairs = Json::array();
  for (std::size_t at = 0; at < report.pairs.size(); ++at) pairs.push_back(pair_json(report.pairs[at], at));
  json["pairs"] = std::move(pairs);
  Json unpaired = Json::array();
  for (const UnpairedReport& one : report.unpaired) {
    unpaired.push_back({{"side", one.side},
                        {"name", one.name},
                        {"tags", one.tags},
                        {"step", one.step},
                        {"ranks", one.ranks},
                        {"reason", one.reason},
                        {"nearest_name", one.nearest_name.empty() ? Json() : Json(one.nearest_name)}});
  }
  json["unpaired"] = std::move(unpaired);
  Json unreadable = Json::array();
  for (const UnreadableReport& one : report.unreadable)
    unreadable.push_back({{"path", one.path}, {"cause", one.cause}});
  json["unreadable"] = std::move(unreadable);
  Json steps = Json::array();
  for (const StepReport& step : report.steps) {
    Json one = {{"step", step.step},     {"pairs", step.pairs},   {"same_bits", step.same_bits},
                {"passed", step.passed}, {"failed", step.failed}, {"skipped", step.skipped}};
    one.update(divergence(step.divergence));
    steps.push_back(std::move(one));
  }
  json["steps"] = std::move(steps);
  // Names are any bytes; what is no UTF-8 becomes U+FFFD.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dbg::compare
