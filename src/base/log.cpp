// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The one writer of lines.
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_lock.h"
#include "base/formatted.h"
#include "base/no_cancellation.h"
#include "base/quiet_write.h"
#include "dbg/participant.h"

namespace dbg {
namespace {

struct LogState {
  std::mutex mutex;
  std::shared_ptr<const LogHandler> handler;  // under `mutex`; null means the default
  std::atomic<LogLevel> level{LogLevel::info};
};

// Leaked on purpose: lines may be written while the process exits.
constinit base::Leaked<LogState> leaked_state;

std::mutex& log_mutex() noexcept {
  return leaked_state.value.mutex;
}

LogState& log_state() noexcept {
  base::hold_over_forks<&log_mutex>();
  return leaked_state.value;
}

std::string make_line(std::string_view part, std::string_view text) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const double seconds = std::chrono::duration<double>(since_epoch).count();
  return formatted("[{}, rank={}, t={:.3f}] {}", part, current_participant()->rank(), seconds, text);
}

// How long lines may keep the program from its work when nobody reads stderr: once, until somebody reads again.
constexpr int kReaderPatienceMs = 1000;

// Whether the last line found a reader that took nothing.
std::atomic<bool> is_reader_stuck{false};
// Lines that got lost, and are not told of yet.
std::atomic<std::uint64_t> lost_lines{0};
// Whether the last of them is there in part, so that the next has to begin a line of its own.
std::atomic<bool> is_line_torn{false};

// Whether all of it was written. Short writes are finished.
bool write_all(std::string_view text) noexcept {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const int patience = is_reader_stuck.load(std::memory_order_relaxed) ? 0 : kReaderPatienceMs;
    const ssize_t written = base::write_without_waiting(STDERR_FILENO, text.data(), text.size(), patience);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) is_reader_stuck.store(true, std::memory_order_relaxed);
    if (written <= 0) {
      if (text.size() < size) is_line_torn.store(true, std::memory_order_relaxed);
      return false;
    }
    is_reader_stuck.store(false, std::memory_order_relaxed);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// One write a line, so that lines of several threads and processes do not mix. Errors are dropped: there is nowhere
// left to report them but in the next line that gets through.
void write_to_stderr(std::string_view line) noexcept {
  std::uint64_t lost = 0;
  try {
    std::string whole;
    if (is_line_torn.exchange(false, std::memory_order_relaxed)) whole.push_back('\n');
    whole += line;
    lost = lost_lines.exchange(0, std::memory_order_relaxed);
    if (lost > 0) whole += formatted(" ({} lines before this one are lost: nobody read stderr)", lost);
    whole.push_back('\n');
    if (write_all(whole)) return;
  } catch (...) {
  }
  lost_lines.fetch_add(lost + 1, std::memory_order_relaxed);
}

thread_local bool inside_handler = false;

// Null: this thread's lines are written at once.
constinit thread_local base::HeldLines* held = nullptr;

// Until its end, what this thread logs goes past the handler.
class PastHandler {
 public:
  PastHandler() : before_(std::exchange(inside_handler, true)) {}
  ~PastHandler() { inside_handler = before_; }
  PastHandler(const PastHandler&) = delete;
  PastHandler& operator=(const PastHandler&) = delete;

 private:
  bool before_;
};

void hand_over(LogLevel level, std::string_view line) noexcept {
  try {
    std::shared_ptr<const LogHandler> handler;
    {
      LogState& state = log_state();
      const std::lock_guard lock(state.mutex);
      handler = state.handler;
    }
    if (!handler || inside_handler) {
      write_to_stderr(line);
      return;
    }
    inside_handler = true;
    try {
      (*handler)(level, line);
    } catch (...) {
      write_to_stderr(line);
    }
    inside_handler = false;
  } catch (...) {
    write_to_stderr(line);
  }
}

}  // namespace

void set_log_handler(LogHandler handler) {
  auto fresh = handler ? std::make_shared<const LogHandler>(std::move(handler)) : nullptr;
  LogState& state = log_state();
  const std::lock_guard lock(state.mutex);
  state.handler.swap(fresh);
}

void set_log_level(LogLevel level) noexcept {
  log_state().level.store(level, std::memory_order_relaxed);
}

namespace base {

bool log_enabled(LogLevel level) noexcept {
  return level >= log_state().level.load(std::memory_order_relaxed);
}

HeldLines::HeldLines() noexcept : is_outermost_(held == nullptr) {
  if (is_outermost_) held = this;
}

HeldLines::~HeldLines() {
  if (!is_outermost_) return;
  held = nullptr;
  const NoCancellation until_written;
  const int caller_errno = errno;
  for (const auto& [level, line] : lines_) hand_over(level, line);
  errno = caller_errno;
}

void log_text(LogLevel level, std::string_view part, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  const NoCancellation until_written;
  const int caller_errno = errno;  // a log line must not change what the caller reads next
  try {
    std::string line = make_line(part, text);
    if (held != nullptr) {
      held->lines_.emplace_back(level, std::move(line));
    } else {
      hand_over(level, line);
    }
  } catch (...) {
    write_to_stderr(text);
  }
  errno = caller_errno;
}

void log_past_handler(LogLevel level, std::string_view part, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  const NoCancellation until_written;
  const int caller_errno = errno;
  try {
    const PastHandler making_the_line_may_log;  // a complaint about the environment
    write_to_stderr(make_line(part, text));
  } catch (...) {
    write_to_stderr(text);
  }
  errno = caller_errno;
}

}  // namespace base
}  // namespace dbg
