// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A way to end waiting operations from another thread, and a watch that does so when a key appears in a store.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace dbg::distributed {

/// Raised once, it ends every operation that waits under it, and those begun under it later.
/// Threads: safe to call from any thread.
class AbortSignal {
 public:
  AbortSignal() = default;
  AbortSignal(const AbortSignal&) = delete;
  AbortSignal& operator=(const AbortSignal&) = delete;

  /// Raises the signal; the first cause stays.
  void raise(std::string cause);

  /// The cause; nullopt while it is not raised.
  std::optional<std::string> cause() const;

  /// While it lives, raising the signal aborts `work`; at once when it is raised already.
  class Scope {
   public:
    Scope(AbortSignal* signal, c10::intrusive_ptr<c10d::Work> work);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    AbortSignal* signal_;
    std::list<c10::intrusive_ptr<c10d::Work>>::iterator place_;
  };

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> cause_;
  std::list<c10::intrusive_ptr<c10d::Work>> waiting_;
};

/// Raises a signal when a key appears in a store. The key's value is the cause.
///
/// Asks through a client of its own, so that it never waits behind another call, and never waits in the store itself.
/// A store that stops answering ends the watch without raising: the operations' own deadlines remain.
/// Threads: one thread at a time. Owns a thread, which ends with it.
class AbortWatch {
 public:
  AbortWatch(const c10::intrusive_ptr<c10d::Store>& store, std::string key, std::shared_ptr<AbortSignal> signal);
  ~AbortWatch();
  AbortWatch(const AbortWatch&) = delete;
  AbortWatch& operator=(const AbortWatch&) = delete;

 private:
  void watch();

  c10::intrusive_ptr<c10d::Store> store_;
  std::string key_;
  std::shared_ptr<AbortSignal> signal_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::thread thread_;
};

/// Puts the cause under `key`, for every watch on it.
/// Throws: CommError(store_down) when the store does not take it.
void raise_through_store(c10d::Store& store, const std::string& key, const std::string& cause);

}  // namespace dbg::distributed
