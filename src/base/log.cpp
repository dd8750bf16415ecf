// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The one writer of lines.
#include "base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_lock.h"
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

// One write(2) a line, so that lines of several threads and processes do not mix. Short writes are finished; errors
// are dropped: there is nowhere left to report them.
void write_to_stderr(std::string_view line) noexcept {
  try {
    std::string whole(line);
    whole.push_back('\n');
    const char* at = whole.data();
    std::size_t left = whole.size();
    while (left > 0) {
      const ssize_t written = ::write(STDERR_FILENO, at, left);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      at += written;
      left -= static_cast<std::size_t>(written);
    }
  } catch (...) {
  }
}

thread_local bool inside_handler = false;

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

// Writing is a cancellation point, and nothing here may unwind: a thread that is being cancelled goes on to the next
// such point, outside.
class NoCancellation {
 public:
  NoCancellation() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

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

void log_text(LogLevel level, std::string_view part, std::string_view text) noexcept {
  if (!log_enabled(level)) return;
  const NoCancellation until_written;
  const int caller_errno = errno;  // a log line must not change what the caller reads next
  try {
    const std::string line = make_line(part, text);
    std::shared_ptr<const LogHandler> handler;
    {
      LogState& state = log_state();
      const std::lock_guard lock(state.mutex);
      handler = state.handler;
    }
    if (!handler || inside_handler) {
      write_to_stderr(line);
    } else {
      inside_handler = true;
      try {
        (*handler)(level, line);
      } catch (...) {
        write_to_stderr(line);
      }
      inside_handler = false;
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
