// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, as an engine that drives several devices runs them.
#pragma once

#include <chrono>
#include <functional>

namespace dbg::test {

/// Runs `body(rank)` for each rank on a thread of its own, bound to the participant `rank` of `world_size`, and waits
/// for all. What the first failing rank threw is thrown again on the calling thread; the others' words go to stderr.
///
/// Ranks that are not done by `limit` can't be ended, and nothing they hold may be destroyed: their stacks go to stderr
/// and the process exits with status 1.
/// Assertions of gtest may be used inside; a fatal one ends its function only.
void run_ranks_as_threads(int world_size, const std::function<void(int rank)>& body,
                          std::chrono::milliseconds limit = std::chrono::seconds(60));

}  // namespace dbg::test
