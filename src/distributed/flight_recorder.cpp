// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks torch for its dump; older torch has none, which the build finds out from its header.
#include "distributed/flight_recorder.h"

#include <cstdint>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/fence.h"

#if DBG_TORCH_HAS_FLIGHT_RECORDER_JSON
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#endif

namespace dbg::distributed {

std::string flight_recorder_json(bool with_entries) {
#if DBG_TORCH_HAS_FLIGHT_RECORDER_JSON
  return c10d::dump_fr_trace_json(with_entries, false);
#else
  static_cast<void>(with_entries);
  return {};
#endif
}

std::optional<RecordedGroup> recorded_group_config(const std::string& name) {
  std::optional<RecordedGroup> found;
  static_cast<void>(base::run_fenced([&] {
    const auto dump = nlohmann::json::parse(flight_recorder_json(false));
    const auto& config = dump.at("pg_config").at(name);
    found = RecordedGroup{config.at("name"), config.at("desc"), config.at("ranks")};
  }));
  return found;
}

bool can_describe_recorded_groups() noexcept {
#if DBG_TORCH_HAS_FLIGHT_RECORDER_OF
  return true;
#else
  return false;
#endif
}

void describe_recorded_group([[maybe_unused]] const std::string& name, [[maybe_unused]] const std::string& label,
                             [[maybe_unused]] const std::vector<int>& ranks) noexcept {
#if DBG_TORCH_HAS_FLIGHT_RECORDER_OF
  static_cast<void>(base::run_fenced([&] {
    auto* recorder = c10d::getFlightRecorder("gloo");
    if (!recorder->enabled_) return;
    std::vector<std::uint64_t> members(ranks.begin(), ranks.end());
    const std::lock_guard lock(recorder->mutex_);
    auto& groups = recorder->pg_name_to_ranks_;
    // The dump takes the first entry of a name, and the one without a description sorts first.
    for (auto at = groups.begin(); at != groups.end();) {
      const bool is_it = std::get<0>(at->first) == name;
      if (is_it && !at->second.empty()) members = std::move(at->second);
      at = is_it ? groups.erase(at) : std::next(at);
    }
    // By hand: record_pg_ranks() is declared, and no library holds it.
    groups[{name, label}] = std::move(members);
  }));
#endif
}

}  // namespace dbg::distributed
