// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a profiler's trace says of all groups of the process: `distributedInfo`, as torch.profiler writes it.
#pragma once

#include <memory>
#include <string>

#include "distributed/group_half.h"

namespace dbg::distributed {

/// Lists a half in `distributedInfo` for as long as the result lives.
/// Threads: safe to call from any thread.
std::shared_ptr<void> list_in_traces(const GroupHalf& half, const std::string& kind);

/// `{"backend", "rank", "world_size", "pg_count", "pg_config": [{"pg_name", "pg_desc", "backend_config", "pg_size",
/// "ranks"}]}` over the halves listed now. Empty when there are none. `world_size` is the world's; where only groups
/// are known that somebody else made, that of the largest.
std::string distributed_info_json();

}  // namespace dbg::distributed
