// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One line that says how far a long comparison is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace dbg::cli {

/// When lines are due.
struct ProgressPace {
  std::chrono::milliseconds silence{1000};  ///< what is done sooner needs no line
  std::chrono::milliseconds pause{200};     ///< from one line to the next
  std::chrono::milliseconds beat{1000};     ///< a line comes so often also when nothing is done meanwhile
};

/// What to show, or nothing yet.
/// Threads: one thread at a time.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(Clock::time_point started, ProgressPace pace = {})
      : started_(started), shown_(started), pace_(pace) {}

  /// The line for now; nullopt when none is due.
  std::optional<std::string> line(std::size_t done, std::size_t all, Clock::time_point now);

 private:
  Clock::time_point started_;
  Clock::time_point shown_;
  ProgressPace pace_;
};

/// The line on a terminal: each rewrites the one before, and the last is taken away when all is done or the object
/// goes, so that what is written next begins on an empty line. A thread of its own goes on with it while one pair takes
/// long.
/// Threads: one thread at a time.
class ProgressLine {
 public:
  /// Begins now; `descriptor` is the terminal's.
  explicit ProgressLine(int descriptor, ProgressPace pace = {});
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::size_t done, std::size_t all);

 private:
  void draw();       // under mutex_
  void take_away();  // under mutex_
  void beat();

  const int descriptor_;
  const ProgressPace pace_;
  std::mutex mutex_;
  std::condition_variable ends_;
  Progress progress_;      // under mutex_
  std::size_t done_ = 0;   // under mutex_
  std::size_t all_ = 0;    // under mutex_
  bool is_there_ = false;  // under mutex_
  bool is_over_ = false;   // under mutex_
  std::thread thread_;
};

}  // namespace dbg::cli
