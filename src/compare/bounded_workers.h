// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Jobs on several threads, of which only so many bytes are in hand at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace dbg::compare {

struct WorkLimits {
  unsigned threads = 1;
  /// A job larger than this runs alone.
  std::uint64_t bytes_in_hand = std::uint64_t{512} << 20;
};

/// Runs `work(0)` ... `work(jobs - 1)`, begun in this order, and returns when all are done. `bytes_of` tells what a job
/// takes. `done`, where given, is called with how many are done: by one thread at a time, now and then and once all
/// are. Throws: what the first job that threw has thrown; jobs not begun by then are left out.
void run_bounded(std::size_t jobs, const WorkLimits& limits, const std::function<std::uint64_t(std::size_t)>& bytes_of,
                 const std::function<void(std::size_t)>& work, const std::function<void(std::size_t)>& done = {});

}  // namespace dbg::compare
