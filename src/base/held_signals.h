// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Code that writes where a failure sends a signal, and must be an error instead of the end of the process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace dbg::base {

/// While it lives, the calling thread gets none of `signals`, and what they say is in errno only; so it is, for good,
/// on threads that are started meanwhile. For signals that are sent to the thread which fails, as SIGPIPE and SIGXFSZ
/// are. Installs no handler. One that was pending before stays. Costs three system calls, two after `none_came`.
class HeldSignals {
 public:
  explicit HeldSignals(std::initializer_list<int> signals) noexcept {
    ::sigemptyset(&taken_);
    for (const int number : signals) ::sigaddset(&taken_, number);
    is_held_ = ::pthread_sigmask(SIG_BLOCK, &taken_, &before_) == 0;
    if (!is_held_) return;
    // What is pending now is the program's, and can only be so where it holds the signal back itself.
    bool was_held = false;
    for (const int number : signals) was_held = was_held || ::sigismember(&before_, number) == 1;
    sigset_t pending;
    if (!was_held || ::sigpending(&pending) != 0) return;
    for (const int number : signals) {
      if (::sigismember(&pending, number) == 1) ::sigdelset(&taken_, number);
    }
  }
  ~HeldSignals() {
    if (!is_held_) return;
    const int error = errno;
    if (may_have_come_) {
      const timespec no_time{};
      while (::sigtimedwait(&taken_, nullptr, &no_time) >= 0 || errno == EINTR) {
      }
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Nothing failed, so that there is nothing to take.
  void none_came() noexcept { may_have_come_ = false; }

 private:
  sigset_t taken_;  // at the end, where they have come meanwhile
  sigset_t before_;
  bool is_held_ = false;
  bool may_have_come_ = true;
};

/// A write to a connection or a pipe that is closed at the other end fails with EPIPE, and that is all.
class NoSigpipe {
 public:
  NoSigpipe() noexcept : held_({SIGPIPE}) {}

 private:
  HeldSignals held_;
};

}  // namespace dbg::base
