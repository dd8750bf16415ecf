// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Code that writes to connections whose other end may be gone, where that must be an error and not the end of the
// process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <ctime>

namespace dbg::base {

/// While it lives, a write of this thread to a connection that is closed at the other end fails with EPIPE and sends no
/// SIGPIPE that anybody sees; so it is, for good, on threads that are started meanwhile. Installs no handler; a signal
/// that was pending before stays. Costs two system calls.
class NoSigpipe {
 public:
  NoSigpipe() noexcept {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    sigset_t before;
    if (::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before) != 0) return;
    is_ours_ = ::sigismember(&before, SIGPIPE) == 0;
  }
  ~NoSigpipe() {
    if (!is_ours_) return;
    // It was not blocked before, so that whatever is pending came meanwhile.
    const int error = errno;
    const timespec no_time{};
    while (::sigtimedwait(&sigpipe_, nullptr, &no_time) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_UNBLOCK, &sigpipe_, nullptr);
    errno = error;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t sigpipe_;
  bool is_ours_ = false;
};

}  // namespace dbg::base
