// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A way to end waiting operations from another thread.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
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

}  // namespace dbg::distributed
