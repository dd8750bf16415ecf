// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Starts, joins in time, or lets go.
#include "broadcast/wire_thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace dbg::broadcast {
namespace {

// gloo writes to connections whose other end may be gone by then, on the thread that sends and on threads that it
// started when the group was made. A signal that is blocked is no end of the process: the write fails, and is told.
void block_sigpipe() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

WireThread::WireThread(std::function<void()> body) : shared_(std::make_shared<Shared>()) {
  thread_ = std::thread([shared = shared_, run = std::move(body)]() mutable {
    ::pthread_setname_np(::pthread_self(), "dbg-wire");
    block_sigpipe();
    run();
    run = nullptr;  // what it owns goes before anybody hears that it has ended
    const std::lock_guard lock(shared->mutex);
    shared->has_ended = true;
    shared->ended.notify_all();
  });
}

WireThread::~WireThread() {
  if (thread_.joinable() && !join_for(std::chrono::milliseconds(0))) thread_.detach();
}

bool WireThread::join_for(std::chrono::milliseconds limit) {
  if (!thread_.joinable()) return true;
  {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->ended.wait_for(lock, limit, [&] { return shared_->has_ended; })) return false;
  }
  thread_.join();
  return true;
}

}  // namespace dbg::broadcast
