// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The World of ranks as processes whose argument is the port of rank 0's store.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "dbg/world.h"
#include "support/rank_processes.h"

namespace dbg::test {

inline World open_tcp_world(const RankContext& context) {
  WorldOptions options;
  options.timeout = std::chrono::seconds(20);
  const auto port = static_cast<std::uint16_t>(std::stoi(context.argument));
  return World::over_tcp({"127.0.0.1", port, context.rank == 0}, context.rank, context.world_size, options);
}

}  // namespace dbg::test
