// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Both sides of a graft as processes, wired from the environment.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "base/formatted.h"
#include "graft/sides.h"
#include "support/rank_processes.h"
#include "support/stderr_line.h"

namespace dbg::test {

inline at::Tensor filled(double value) {
  return at::full({4}, value, at::kFloat);
}

/// Which rank of which side a rank process is.
struct Place {
  bool is_baseline = false;
  int rank = 0;
  int size = 0;
};

/// Sets the environment of its side, and `knobs` beyond that. A rank process is rank R of all; the first `baseline` are
/// that side. Argument: "<port> <baseline> <what else>".
inline Place take_place(const RankContext& context, const std::map<std::string, std::string>& knobs = {}) {
  std::istringstream words(context.argument);
  int port = 0;
  int baseline = 0;
  words >> port >> baseline;
  const int target = context.world_size - baseline;
  Place place;
  place.is_baseline = context.rank < baseline;
  place.rank = place.is_baseline ? context.rank : context.rank - baseline;
  place.size = place.is_baseline ? baseline : target;
  const auto set = [](const std::string& name, const std::string& value) { ::setenv(name.c_str(), value.c_str(), 1); };
  set("RANK", std::to_string(place.rank));
  set("WORLD_SIZE", std::to_string(place.size));
  set("LOCAL_RANK", std::to_string(place.rank));
  set("DUMPER_ENABLE", "1");
  set("DUMPER_ENABLE_OUTPUT_FILE", "0");
  set("DUMPER_ENABLE_OUTPUT_CONSOLE", "0");
  set("DUMPER_GRAFTER_ENABLE", "1");
  set("DUMPER_GRAFTER_ROLE", place.is_baseline ? "baseline" : "target");
  set("DUMPER_GRAFTER_B2T_FILTER", "name.startswith('x')");
  set("DUMPER_GRAFTER_T2B_FILTER", "name.startswith('y')");
  set("DUMPER_GRAFTER_MASTER_ADDRESS", "127.0.0.1");
  set("DUMPER_GRAFTER_MASTER_PORT", std::to_string(port));
  set("DUMPER_GRAFTER_BASELINE_WORLD_SIZE", std::to_string(baseline));
  set("DUMPER_GRAFTER_TARGET_WORLD_SIZE", std::to_string(target));
  set("DUMPER_GRAFTER_TIMEOUT", "30");
  for (const auto& [name, value] : knobs) set(name, value);
  return place;
}

/// What starts `body` on the ranks of both sides.
inline RankSpawn sides_of(const std::string& body, int baseline, int target) {
  RankSpawn spawn;
  spawn.body = body;
  spawn.world_size = baseline + target;
  spawn.argument = formatted("{} {}", free_port(), baseline);
  spawn.limit = std::chrono::seconds(90);
  return spawn;
}

}  // namespace dbg::test
