// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How dbg's own parts write a line: formatted, prefixed, and without ever throwing.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/log.h"

namespace dbg::base {

/// Whether a line of this level would be handled.
bool log_enabled(LogLevel level) noexcept;

/// Writes `[part, rank=R, t=<unix seconds, 3 digits>] text` through the handler. Never throws.
void log_text(LogLevel level, std::string_view part, std::string_view text) noexcept;

/// Writes such a line to stderr, whatever the handler: in a forked child that one may wait for a lock of its own which
/// a thread of the parent held. Never throws.
void log_past_handler(LogLevel level, std::string_view part, std::string_view text) noexcept;

/// While it lives, lines of its thread are kept, and then written in their order: for code that others wait for, since
/// a log handler may itself wait for one of these. Ends on the thread that made it, the inner one first.
class HeldLines {
 public:
  HeldLines() noexcept;
  ~HeldLines();
  HeldLines(const HeldLines&) = delete;
  HeldLines& operator=(const HeldLines&) = delete;

 private:
  friend void log_text(LogLevel level, std::string_view part, std::string_view text) noexcept;
  bool is_outermost_;  // an inner one leaves its lines to the outer
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

/// Formats and writes a line. Never throws: a line that can't be formatted is replaced by one that says so.
template <class... Args>
void log(LogLevel level, std::string_view part, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_text(level, part, formatted(format, std::forward<Args>(args)...));
  } catch (...) {
    log_text(level, part, "(a line could not be formatted: out of memory?)");
  }
}

}  // namespace dbg::base
