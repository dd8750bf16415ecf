// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Foreign code that may never return, run where it can be left to itself.
#pragma once

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace dbg::base {

/// A thread that is left to itself where nobody has joined it, as when the one who waits for it is cancelled.
/// Threads: one thread at a time.
class LeftThread {
 public:
  explicit LeftThread(std::thread thread) : thread_(std::move(thread)) {}
  ~LeftThread() {
    if (thread_.joinable()) thread_.detach();
  }
  LeftThread(const LeftThread&) = delete;
  LeftThread& operator=(const LeftThread&) = delete;
  void join() { thread_.join(); }

 private:
  std::thread thread_;
};

/// Runs `job` on a thread of its own and waits for it until `deadline`. Returns false when it is left behind, to end by
/// itself: the job owns all that it uses. It throws nothing.
template <class Job>
bool finishes_by(std::chrono::steady_clock::time_point deadline, Job job) {
  std::promise<void> done;
  const std::future<void> is_done = done.get_future();
  LeftThread thread(std::thread([job = std::move(job), done = std::move(done)]() mutable {
    {
      Job own = std::move(job);
      own();
    }  // what it holds goes before it counts as done
    done.set_value();
  }));
  if (is_done.wait_until(deadline) == std::future_status::ready) {
    thread.join();
    return true;
  }
  return false;
}

}  // namespace dbg::base
