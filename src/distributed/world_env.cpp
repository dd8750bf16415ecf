// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A World from what torchrun, or a person, put into the environment.
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/world.h"

namespace dbg {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int number(const char* name, const std::string& text, int lowest, int highest) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < lowest || value > highest) {
    throw ConfigError(formatted("World: {} is '{}'; it is a whole number from {} to {}.", name, text, lowest, highest));
  }
  return value;
}

constexpr int kMostRanks = 1 << 24;

// Which machine: torchrun says; else it follows where all machines hold equally many ranks; else it is the first.
int node_of(int rank) {
  if (const auto group_rank = variable("GROUP_RANK")) return number("GROUP_RANK", *group_rank, 0, kMostRanks);
  if (const auto per_node = variable("LOCAL_WORLD_SIZE")) {
    return rank / number("LOCAL_WORLD_SIZE", *per_node, 1, kMostRanks);
  }
  return 0;
}

}  // namespace

World World::from_env(std::chrono::milliseconds timeout) {
  constexpr const char* kNames[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};
  std::vector<std::string> there;
  std::vector<std::string> missing;
  for (const char* name : kNames) (variable(name) ? there : missing).emplace_back(name);
  WorldOptions options;
  options.timeout = timeout;
  if (there.empty()) {
    return for_threads(1, options).front();
  }
  if (!missing.empty()) {
    throw ConfigError(
        formatted("World: {} set and {} missing; torchrun sets all of them. Set the missing, or unset "
                  "the others for a world of one rank.",
                  fmt::join(there, ", "), fmt::join(missing, ", ")));
  }
  const int world_size = number("WORLD_SIZE", *variable("WORLD_SIZE"), 1, kMostRanks);
  const int rank = number("RANK", *variable("RANK"), 0, world_size - 1);
  options.local_rank = number("LOCAL_RANK", *variable("LOCAL_RANK"), 0, world_size - 1);
  options.node_id = node_of(rank);
  TcpStoreAddress address;
  address.host = *variable("MASTER_ADDR");
  address.port = static_cast<std::uint16_t>(number("MASTER_PORT", *variable("MASTER_PORT"), 1, 65535));
  const bool agent_serves = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  // A second server would print an error line into the user's log before it gave way.
  address.is_server = rank == 0 && !agent_serves;
  if (agent_serves) {
    const std::string restarts = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
    options.key_prefix += formatted("/attempt_{}", number("TORCHELASTIC_RESTART_COUNT", restarts, 0, kMostRanks));
  }
  return over_tcp(address, rank, world_size, options);
}

}  // namespace dbg
