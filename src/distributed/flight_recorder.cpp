// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks torch for its dump; older torch has none, which the build finds out from its header.
#include "distributed/flight_recorder.h"

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>

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

void describe_recorded_group([[maybe_unused]] const std::string& name, [[maybe_unused]] const std::string& label,
                             [[maybe_unused]] const std::vector<int>& ranks) noexcept {
#if DBG_TORCH_HAS_FLIGHT_RECORDER_OF
  static_cast<void>(base::run_fenced([&] {
    auto* recorder = c10d::getFlightRecorder("gloo");
    {
      // The dump takes the first entry of a name, and the one without a description sorts first.
      const std::lock_guard lock(recorder->mutex_);
      recorder->pg_name_to_ranks_.erase({name, std::string()});
    }
    recorder->record_pg_ranks({name, label}, std::vector<std::uint64_t>(ranks.begin(), ranks.end()));
  }));
#endif
}

}  // namespace dbg::distributed
