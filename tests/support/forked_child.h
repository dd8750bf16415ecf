// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A forked child of a test: what it does, what it printed, how it ended, and that it did not hang.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>

namespace dbg::test {

struct ForkedChild {
  bool hung = false;  ///< killed here, past the limit
  int exit_code = -1;
  int signal = 0;
  std::string output;  ///< all of its stdout and stderr
};

/// Forks; the child runs `body()` and ends with what it returns, by _exit. No other thread may fork meanwhile.
template <class Body>
ForkedChild run_forked(Body&& body, std::chrono::milliseconds limit = std::chrono::seconds(30)) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid == 0) {
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    ::_exit(body());
  }
  ::close(ends[1]);
  ForkedChild child;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  // The pipe ends when the child does.
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waited{ends[0], POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&waited, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      child.hung = true;
      ::kill(pid, SIGKILL);
      break;
    }
    char bytes[4096];
    const ssize_t got = ::read(ends[0], bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    child.output.append(bytes, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) child.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
  return child;
}

}  // namespace dbg::test
