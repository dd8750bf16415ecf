// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The fence around foreign code: what it throws becomes a cause in words, and the run goes on.
#pragma once

#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dbg::base {

/// Decides which of many equal events is worth a line: the first, then every power of two.
/// Threads: safe to call from any thread.
class RepeatLimiter {
 public:
  /// Counts one event; returns its number when it is worth a line, else 0.
  std::uint64_t hit() noexcept {
    const std::uint64_t number = count_.fetch_add(1, std::memory_order_relaxed) + 1;
    return (number & (number - 1)) == 0 ? number : 0;
  }
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> count_{0};
};

/// What the exception being handled says, on one line, without torch's backtrace. Only inside a catch block.
std::string describe_current_exception() noexcept;

/// Runs `code`; returns nullopt when it came through, else the cause.
/// Not swallowed: the forced unwinding of a cancelled thread, which the C library insists on.
template <class Code>
std::optional<std::string> run_fenced(Code&& code) {
  try {
    std::forward<Code>(code)();
    return std::nullopt;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return describe_current_exception();
  }
}

}  // namespace dbg::base
