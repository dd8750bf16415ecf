// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Asks torch for its dump; older torch has none, which the build finds out from its header.
#include "distributed/flight_recorder.h"

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

}  // namespace dbg::distributed
