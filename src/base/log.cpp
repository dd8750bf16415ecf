// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The one writer of lines.
#include "base/log.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_lock.h"
#include "base/no_cancellation.h"
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
  return fmt::format("[{}, rank={}, t={:.3f}] {}", part, current_participant()->rank(), seconds, text);
}

// While it lives, a write into a pipe whose reader is gone (a log collector that died, `run | head`) is an error and
// not a signal that ends the program. A signal that was pending before stays, and so does the program's own handling of
// it.
class NoPipeSignal {
 public:
  NoPipeSignal() noexcept {
    sigset_t pending;
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    is_blocked_ = ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  ~NoPipeSignal() {
    if (!is_blocked_) return;
    const timespec no_time{};
    if (is_broken && !was_pending_) {
      while (::sigtimedwait(&pipe_, nullptr, &no_time) < 0 && errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

  bool is_broken = false;  ///< a write said so, and sent this thread the signal

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
  bool is_blocked_ = false;
};

// One write(2) a line, so that lines of several threads and processes do not mix. Short writes are finished; errors
// are dropped: there is nowhere left to report them.
void write_to_stderr(std::string_view line) noexcept {
  try {
    std::string whole(line);
    whole.push_back('\n');
    const char* at = whole.data();
    std::size_t left = whole.size();
    NoPipeSignal no_signal;
    while (left > 0) {
      const ssize_t written = ::write(STDERR_FILENO, at, left);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EPIPE) no_signal.is_broken = true;
      if (written <= 0) return;
      at += written;
      left -= static_cast<std::size_t>(written);
    }
  } catch (...) {
  }
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
