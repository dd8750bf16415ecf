// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Foreign code that may never return, run where it can be left to itself.
#pragma once

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace dbg::base {

/// Runs `job` on a thread of its own and waits for it until `deadline`. Returns false when it is left behind, to end by
/// itself: the job owns all that it uses. It throws nothing.
template <class Job>
bool finishes_by(std::chrono::steady_clock::time_point deadline, Job job) {
  std::promise<void> done;
  const std::future<void> is_done = done.get_future();
  std::thread thread([job = std::move(job), done = std::move(done)]() mutable {
    {
      Job own = std::move(job);
      own();
    }  // what it holds goes before it counts as done
    done.set_value();
  });
  if (is_done.wait_until(deadline) == std::future_status::ready) {
    thread.join();
    return true;
  }
  thread.detach();
  return false;
}

}  // namespace dbg::base
