// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One line that says how far a long comparison is.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace dbg::cli {

/// What to show, or nothing yet: the first second is silent, and then a line comes five times a second at most.
/// Threads: one thread at a time.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(Clock::time_point started) : started_(started), shown_(started) {}

  /// The line for now; nullopt when none is due.
  std::optional<std::string> line(std::size_t done, std::size_t all, Clock::time_point now);

  bool has_shown() const noexcept { return has_shown_; }

 private:
  Clock::time_point started_;
  Clock::time_point shown_;
  bool has_shown_ = false;
};

}  // namespace dbg::cli
