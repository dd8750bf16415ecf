// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Calls of a store that end in time, whether it answers or not.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <type_traits>
#include <utility>

namespace dbg::distributed {

/// A store did not answer in time. The text names the store and how long it has been silent.
class StoreSilent : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What to do about it, for errors.
inline constexpr const char* kAdviceStoreSilent =
    "See whether the rank that serves the store still runs and answers: it may be stopped, in a debugger, or cut off";

/// While it lives, no call that this thread makes through a StoreCaller goes on beyond `deadline`. Of several that
/// live, the earliest counts.
class StoreDeadline {
 public:
  /// What it says of the store when a call misses the deadline.
  enum class Missed {
    means_down,  ///< it counts as down: every later call fails at once, until it answers after all
    is_forgiven  ///< nothing: for looks that one can do without, whose time is short
  };
  explicit StoreDeadline(std::chrono::steady_clock::time_point deadline, Missed missed = Missed::means_down);
  ~StoreDeadline();
  StoreDeadline(const StoreDeadline&) = delete;
  StoreDeadline& operator=(const StoreDeadline&) = delete;

 private:
  std::chrono::steady_clock::time_point outer_deadline_;
  Missed outer_missed_;
};

/// Makes calls of one store on a thread of its own and leaves that behind when an answer does not come: a TCPStore's
/// client waits for its server without end, and a server may be stopped, in a debugger, or cut off.
///
/// One call at a time, as a TCPStore's client has it. A call that is left behind may still take effect later. A store
/// in the process's own memory can't be silent and is asked directly. Where the caller holds the last reference to its
/// store, that ends on a thread of its own and is waited for but a moment. Threads: safe to call from any thread; not
/// in a forked child.
class StoreCaller {
 public:
  /// The one of this store: all that stand on the store share its thread and know when it is silent.
  static std::shared_ptr<StoreCaller> of(const c10::intrusive_ptr<c10d::Store>& store);

  explicit StoreCaller(c10::intrusive_ptr<c10d::Store> store);
  /// In a forked child nothing is destroyed.
  ~StoreCaller();
  StoreCaller(const StoreCaller&) = delete;
  StoreCaller& operator=(const StoreCaller&) = delete;

  /// Returns what `job(store)` returns, or throws what it throws. `what` names the call in errors. The job owns all
  /// that it uses: it may outlive the caller. It ends by the thread's StoreDeadline, by `latest`, and within `limit()`,
  /// but has a moment even after those have passed. Throws: StoreSilent.
  template <class Job>
  auto call(const char* what, Job job,
            std::chrono::steady_clock::time_point latest = std::chrono::steady_clock::time_point::max()) {
    using Result = std::invoke_result_t<Job&, c10d::Store&>;
    if constexpr (std::is_void_v<Result>) {
      run(what, std::move(job), latest);
    } else {
      const auto result = std::make_shared<std::optional<Result>>();
      run(
          what, [result, job = std::move(job)](c10d::Store& store) mutable { result->emplace(job(store)); }, latest);
      return *std::move(*result);
    }
  }

  const c10::intrusive_ptr<c10d::Store>& store() const noexcept;

  /// Of each call, from when it is made; those under way are held to it too. At first the store's own timeout.
  void set_limit(std::chrono::milliseconds limit);
  std::chrono::milliseconds limit() const;

  /// From here on every call fails, those that are under way at once: whoever waits for something in the store is to
  /// go. For all that stand on it, and for good.
  void end(std::string why);

  /// What it is silent on, while it counts as down.
  std::optional<std::string> fault() const;

  /// `the TCPStore at 10.0.0.1:29500`.
  const std::string& name() const noexcept;

 private:
  using Job = std::function<void(c10d::Store&)>;
  struct Shared;
  void run(const char* what, Job job, std::chrono::steady_clock::time_point latest);
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // with the threads that may be left behind; the same until the end
  const pid_t owner_pid_;
  const bool is_direct_;
  std::thread thread_;  // under the mutex of shared_; started by the first call
};

}  // namespace dbg::distributed
