// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Holds a write's signals back on its thread, and asks before it writes.
#include "base/quiet_write.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/held_signals.h"

namespace dbg::base {
namespace {

template <class Write>
ssize_t hold_signals_over(Write&& write) noexcept {
  HeldSignals held({SIGPIPE, SIGXFSZ});
  const ssize_t written = write();
  if (written >= 0) held.none_came();
  return written;
}

// Waits until the descriptor takes something or tells an error. False when neither came.
bool wait_until_ready(int descriptor, int patience_ms) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(patience_ms);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd asked{descriptor, POLLOUT, 0};
    const int found = ::poll(&asked, 1, static_cast<int>(std::clamp<long long>(left, 0, patience_ms)));
    if (found >= 0) return found > 0;
    if (errno != EINTR) return true;  // the write then tells why
  }
}

bool means_unsupported(int error) noexcept {
  return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL || error == ESPIPE;
}

}  // namespace

ssize_t write_quietly(int descriptor, const void* data, std::size_t size) noexcept {
  return hold_signals_over([&] { return ::write(descriptor, data, size); });
}

ssize_t write_without_waiting(int descriptor, const void* data, std::size_t size, int patience_ms) noexcept {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return -1;
  if (S_ISREG(status.st_mode)) return write_quietly(descriptor, data, size);
  if (!wait_until_ready(descriptor, patience_ms)) {
    errno = EAGAIN;
    return -1;
  }
  return hold_signals_over([&]() -> ssize_t {
    if (S_ISSOCK(status.st_mode)) return ::send(descriptor, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    // A pipe that was ready takes that much, unless another process was faster: newer kernels say so then.
    const std::size_t at_once = std::min<std::size_t>(size, PIPE_BUF);
    const iovec part{const_cast<void*>(data), at_once};
    const ssize_t written = ::pwritev2(descriptor, &part, 1, -1, RWF_NOWAIT);
    if (written >= 0 || !means_unsupported(errno)) return written;
    return ::write(descriptor, data, at_once);
  });
}

}  // namespace dbg::base
