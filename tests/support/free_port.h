// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A port for a server that is started later, by a process that is told its number.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

namespace dbg::test {

/// A port that nobody uses at the moment; no two calls of a process return the same. Below those that the kernel gives to
/// outgoing connections, which are many while tests run beside each other; where to begin differs by process.
/// Threads: safe to call from any thread.
inline int free_port() {
  constexpr int kFirst = 20000;
  constexpr int kCount = 12000;
  static std::atomic<int> asked{0};
  int error = 0;
  for (int tries = 0; tries < kCount; ++tries) {
    const int port = kFirst + (::getpid() % 1000 * 97 + asked.fetch_add(1)) % kCount;
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<in_port_t>(port));
    const bool is_free = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    error = errno;
    ::close(socket);
    if (is_free) return port;
  }
  throw std::system_error(error, std::generic_category(), "a free port");
}

}  // namespace dbg::test
