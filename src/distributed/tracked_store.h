// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A store for one group's keys: under a prefix, without blocking the store it stands on, and with a list of what it
// wrote.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "distributed/store_caller.h"

namespace dbg::distributed {

/// A client of its own for the same store, so that a wait in one holds up nobody in the other. Torch 2.7's stores can't
/// be cloned and are shared.
c10::intrusive_ptr<c10d::Store> clone_of(const c10::intrusive_ptr<c10d::Store>& store);

/// Forwards to `inner` with `prefix/` before each key and remembers which keys it wrote, so that a group can take away
/// exactly what it left there.
///
/// Waiting never blocks in `inner`: a TCPStore's client lets one operation through at a time, so that a thread that
/// waited inside would keep out the very thread that was to write the key. It polls instead, at most every 50 ms. Every
/// call ends in time, by a StoreCaller, and throws StoreSilent when `inner` does not answer.
/// Threads: as safe as `inner` (all of torch's are).
class TrackedStore : public c10d::Store {
 public:
  TrackedStore(c10::intrusive_ptr<c10d::Store> inner, std::string prefix);
  /// One that shares no thread with others on `inner`, so that its limit and its end are its own.
  static c10::intrusive_ptr<TrackedStore> with_own_caller(const c10::intrusive_ptr<c10d::Store>& inner,
                                                          std::string prefix);

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override;
  // Pure virtual from torch 2.8 or so on, and unknown before: no `override`.
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif
  c10::intrusive_ptr<c10d::Store> clone();  // NOLINT(modernize-use-override)
#ifdef __clang__
#pragma clang diagnostic pop
#endif

  /// No call goes beyond it, and no wait however long its own timeout: a backend that waits for one key after the other
  /// would take that many timeouts. nullopt: none. Holds for waits that are under way too, and for clones: gloo asks
  /// one.
  void set_deadline(std::optional<std::chrono::steady_clock::time_point> deadline);

  /// The value, or nullopt when the key is not there. Never waits, which `get` may do even after a `check`.
  std::optional<std::string> peek(const std::string& key);
  void put(const std::string& key, std::string_view value);

  /// The key stays when those that were written are deleted: others still read it, and delete it.
  void leave(const std::string& key);

  /// Deletes all keys that this store or a clone of it wrote. Returns false when `inner` failed at one of them; the
  /// others are not tried then (it is likely gone). Never throws.
  bool delete_written_keys() noexcept;

  /// The store it stands on.
  const c10::intrusive_ptr<c10d::Store>& inner() const noexcept {
    return caller_->store();
  }
  /// A clone that stands on a clone of `inner`, so that the calls of one hold up nobody in the other. Has a caller of
  /// its own, of the same limit. Throws: as a call.
  c10::intrusive_ptr<TrackedStore> with_own_client();

  /// What each call may take, from when it is made; those under way are held to it too. Holds for all that share the
  /// caller.
  void set_call_limit(std::chrono::milliseconds limit) {
    caller_->set_limit(limit);
  }
  std::chrono::milliseconds call_limit() const {
    return caller_->limit();
  }
  /// From here on every call fails, those that are under way at once; of all that share the caller, and for good.
  void end(std::string why) {
    caller_->end(std::move(why));
  }

  /// With the prefix, sorted: for tests and messages.
  std::vector<std::string> written_keys() const;

  /// What `inner` is silent on, while it counts as down.
  std::optional<std::string> fault() const {
    return caller_->fault();
  }
  /// `the TCPStore at 10.0.0.1:29500`.
  const std::string& store_name() const noexcept {
    return caller_->name();
  }

 private:
  struct Written {
    std::mutex mutex;
    std::set<std::string> keys;  // under mutex; with the prefix
    std::atomic<std::chrono::steady_clock::time_point> deadline{std::chrono::steady_clock::time_point::max()};
  };
  TrackedStore(std::shared_ptr<StoreCaller> caller, std::string prefix, std::shared_ptr<Written> written,
               std::chrono::milliseconds timeout);
  template <class Job>
  auto call(const char* what, Job job);
  std::string full(const std::string& key) const;
  std::vector<std::string> full(const std::vector<std::string>& keys) const;
  void remember(const std::string& full_key);

  std::shared_ptr<StoreCaller> caller_;  // shared with all that stand on the same store
  std::string prefix_;
  std::shared_ptr<Written> written_;  // shared with clones
};

/// Waits between two looks at a store: shortly at first, then longer, never above `most`.
class PollPause {
 public:
  explicit PollPause(std::chrono::microseconds most = std::chrono::milliseconds(50)) : most_(most) {}
  /// Sleeps, at most until `deadline`; false when that has passed.
  bool wait(std::chrono::steady_clock::time_point deadline);

 private:
  std::chrono::microseconds most_;
  std::chrono::microseconds next_{100};
};

}  // namespace dbg::distributed
