// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Opens the stores a World can be made over, with errors that say where, as whom and after how long.
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/errno_text.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "base/left_behind.h"
#include "dbg/error.h"
#include "distributed/world_state.h"

namespace dbg::distributed {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void throw_store_down(std::string operation, Clock::time_point began, std::string cause,
                                   std::string advice) {
  CommFailure failure;
  failure.kind = CommErrorKind::store_down;
  failure.operation = std::move(operation);
  failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  failure.cause = std::move(cause);
  failure.advice = std::move(advice);
  throw CommError(std::move(failure));
}

// 0, or the errno of connecting to `address` by the deadline.
int connect_fault(const addrinfo& address, Clock::time_point deadline) {
  const int socket = ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  int fault = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (fault == EINPROGRESS) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waited{socket, POLLOUT, 0};
    socklen_t size = sizeof fault;
    fault = ETIMEDOUT;
    if (::poll(&waited, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600000))) > 0) {
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &fault, &size);
    }
  }
  ::close(socket);
  return fault;
}

// Why nobody listens there by the deadline, or nothing once somebody does. Torch's own client pauses for seconds
// between its tries, past the timeout, and writes a backtrace into the log for each.
std::optional<std::string> why_not_served(const std::string& host, int port, Clock::time_point deadline) {
  for (;;) {
    const auto reason = why_no_connection(host, port, deadline);
    if (!reason || Clock::now() + std::chrono::milliseconds(50) > deadline) return reason;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

std::optional<std::string> why_no_connection(const std::string& host, int port, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int fault = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); fault != 0) {
    return ::gai_strerror(fault);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  std::string reason;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int refusal = connect_fault(*address, deadline);
    if (refusal == 0) return std::nullopt;
    reason = base::errno_text(refusal);
  }
  return reason;
}

NamedStore open_tcp_store(const TcpStoreAddress& address, int world_size, std::chrono::milliseconds timeout) {
  const auto began = Clock::now();
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = address.is_server;
  options.timeout = timeout;
  options.multiTenant = true;
  options.numWorkers = static_cast<std::size_t>(world_size);
  // A Python rank that serves waits until all have said that they are here; clients say so without waiting. A server
  // of ours waits for nobody: who is missing is for the groups' handshake to say.
  options.waitWorkers = !address.is_server;
  // With the thread that opens it: a server that is stopped takes the connection, and then says nothing.
  struct Opening {
    c10::intrusive_ptr<c10d::TCPStore> store;
    std::optional<std::string> cause;
  };
  const auto opening = std::make_shared<Opening>();
  std::optional<std::string> cause;
  if (!address.is_server) cause = why_not_served(address.host, address.port, began + timeout);
  if (!cause) {
    const auto deadline = std::max(began + timeout, Clock::now() + std::chrono::milliseconds(200));
    const bool has_answered = base::finishes_by(deadline, [opening, host = address.host, options] {
      opening->cause = base::run_fenced([&] { opening->store = c10::make_intrusive<c10d::TCPStore>(host, options); });
    });
    cause = has_answered ? opening->cause
                         : "it takes the connection, but does not answer: its process may be stopped, in a debugger, "
                           "or no TCPStore";
  }
  if (cause) {
    throw_store_down(
        formatted("{} the TCPStore at {}:{}", address.is_server ? "serving (as its server)" : "joining (as a client)",
                  address.host, address.port),
        began, *cause,
        address.is_server ? "Is the port taken, or the host not this machine's?"
                          : "Does the rank that serves it (MASTER_ADDR, MASTER_PORT) run, and is it reachable?");
  }
  return {opening->store, "TCPStore", address.host, opening->store->getPort()};
}

NamedStore open_file_store(const std::string& path, int world_size, std::chrono::milliseconds timeout) {
  const auto began = Clock::now();
  constexpr const char* kAdvice =
      "Name a file, on a file system that all ranks see, in a folder that is there and writable";
  // Torch's own store tries for five minutes to open what can't be opened.
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) throw_store_down("opening the FileStore " + path, began, base::errno_text(errno), kAdvice);
  ::close(file);
  c10::intrusive_ptr<c10d::FileStore> store;
  if (const auto cause = base::run_fenced([&] {
        store = c10::make_intrusive<c10d::FileStore>(path, world_size);
        store->setTimeout(timeout);
      })) {
    throw_store_down("opening the FileStore " + path, began, *cause, kAdvice);
  }
  return {store, "FileStore"};
}

NamedStore open_memory_store() {
  return {c10::make_intrusive<c10d::HashStore>(), "HashStore"};
}

}  // namespace dbg::distributed
