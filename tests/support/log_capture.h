// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Collects dbg's log lines for the length of a scope.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/log.h"

namespace dbg::test {

/// Replaces the log's handler; at the end the default one is back.
/// Threads: safe to call from any thread.
class LogCapture {
 public:
  struct Line {
    LogLevel level;
    std::string text;
  };

  LogCapture() : lines_(std::make_shared<Lines>()) {
    set_log_handler([lines = lines_](LogLevel level, std::string_view text) {
      const std::lock_guard lock(lines->mutex);
      lines->all.push_back({level, std::string(text)});
    });
  }
  ~LogCapture() { set_log_handler(nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  std::vector<Line> lines() const {
    const std::lock_guard lock(lines_->mutex);
    return lines_->all;
  }

  /// How many lines hold `part`.
  std::size_t count(std::string_view part) const {
    const auto all = lines();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [part](const Line& line) { return line.text.find(part) != std::string::npos; }));
  }

 private:
  // Shared with the handler: a line that is being handled while the scope ends still has somewhere to go.
  struct Lines {
    std::mutex mutex;
    std::vector<Line> all;
  };
  std::shared_ptr<Lines> lines_;
};

}  // namespace dbg::test
