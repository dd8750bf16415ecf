// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Threads that take the next job when there is room for it.
#include "compare/bounded_workers.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dbg::compare {
namespace {

class Pool {
 public:
  Pool(std::size_t jobs, const WorkLimits& limits, const std::function<std::uint64_t(std::size_t)>& bytes_of,
       const std::function<void(std::size_t)>& work, const std::function<void(std::size_t)>& done)
      : jobs_(jobs), limits_(limits), bytes_of_(bytes_of), work_(work), done_(done) {}

  void run() {
    const std::size_t wanted = std::min<std::size_t>(std::max(limits_.threads, 1u), std::max<std::size_t>(jobs_, 1));
    std::vector<std::thread> others;
    try {
      for (std::size_t i = 1; i < wanted; ++i) others.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      // Fewer threads do it, too.
    }
    serve();
    for (std::thread& other : others) other.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void serve() noexcept {
    for (;; tell_done()) {
      std::size_t job = 0;
      std::uint64_t bytes = 0;
      try {
        std::unique_lock lock(mutex_);
        // The next job waits for room at the head of the line: were another taken, a large one would starve.
        const std::uint64_t turn = next_turn_++;
        turn_changed_.wait(lock, [&] { return turn == served_turn_; });
        if (next_ < jobs_ && !error_) {
          bytes = bytes_of_(next_);
          turn_changed_.wait(lock, [&] { return in_hand_ == 0 || in_hand_ + bytes <= limits_.bytes_in_hand; });
        }
        ++served_turn_;
        turn_changed_.notify_all();
        if (next_ >= jobs_ || error_) return;
        job = next_++;
        in_hand_ += bytes;
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        ++served_turn_;
        turn_changed_.notify_all();
        return;
      }
      std::exception_ptr error;
      try {
        work_(job);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      in_hand_ -= bytes;
      ++finished_;
      if (error && !error_) error_ = error;
      turn_changed_.notify_all();
    }
  }

  // Tells how many are done. By one thread at a time, and with no lock held: whoever comes while another tells leaves
  // it to that one.
  void tell_done() noexcept {
    std::unique_lock lock(mutex_);
    if (!done_ || is_telling_) return;
    is_telling_ = true;
    while (told_ != finished_) {
      told_ = finished_;
      const std::size_t finished = finished_;
      lock.unlock();
      std::exception_ptr error;
      try {
        done_(finished);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !error_) error_ = error;
    }
    is_telling_ = false;
  }

  const std::size_t jobs_;
  const WorkLimits& limits_;
  const std::function<std::uint64_t(std::size_t)>& bytes_of_;
  const std::function<void(std::size_t)>& work_;
  const std::function<void(std::size_t)>& done_;

  std::mutex mutex_;
  std::condition_variable turn_changed_;
  std::uint64_t next_turn_ = 0;
  std::uint64_t served_turn_ = 0;
  std::size_t next_ = 0;
  std::size_t finished_ = 0;
  std::size_t told_ = 0;
  bool is_telling_ = false;
  std::uint64_t in_hand_ = 0;
  std::exception_ptr error_;
};

}  // namespace

void run_bounded(std::size_t jobs, const WorkLimits& limits, const std::function<std::uint64_t(std::size_t)>& bytes_of,
                 const std::function<void(std::size_t)>& work, const std::function<void(std::size_t)>& done) {
  if (jobs == 0) return;
  Pool(jobs, limits, bytes_of, work, done).run();
}

}  // namespace dbg::compare
