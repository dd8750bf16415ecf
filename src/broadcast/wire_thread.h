// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A thread that can be left behind: for calls of a backend that may never return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace dbg::broadcast {

/// Runs a body once. There, and on threads that the body starts, a write to a connection whose other end is gone is an
/// error and no SIGPIPE.
/// Threads: one thread at a time.
class WireThread {
 public:
  /// `body` owns all it uses, since it may outlive this object. It must not throw.
  explicit WireThread(std::function<void()> body);
  /// Leaves the thread behind unless it has ended.
  ~WireThread();
  WireThread(const WireThread&) = delete;
  WireThread& operator=(const WireThread&) = delete;

  /// Whether it ended within `limit`.
  bool join_for(std::chrono::milliseconds limit);

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable ended;
    bool has_ended = false;
  };
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace dbg::broadcast
