// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A store whose every call ends: a server that is stopped, not dead, lets torch's clients wait for ever.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace dbg::broadcast {

/// Forwards to `inner` on a thread of its own, which is left behind when `inner` does not come back.
///
/// A call that gets no answer within the limit throws; so does, at once, every one after it until the store comes back.
/// What was asked may still happen then. A store written in Python needs the interpreter's lock to be free.
/// Threads: safe to call from any thread; calls go one after the other.
class PatientStore : public c10d::Store {
 public:
  PatientStore(c10::intrusive_ptr<c10d::Store> inner, std::chrono::milliseconds limit);
  ~PatientStore() override;

  /// Of each call, from when it is made; those under way are held to it too.
  void set_limit(std::chrono::milliseconds limit);
  std::chrono::milliseconds limit() const;
  /// Ends the calls under way; from now on all of them throw.
  void close() noexcept;

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

 private:
  struct Call {
    std::function<void(c10d::Store&)> run;
    bool is_given_up = false;
    bool is_done = false;
    std::exception_ptr error;
  };
  // What the thread needs, and keeps when it is left behind.
  struct Shared {
    c10::intrusive_ptr<c10d::Store> inner;
    mutable std::mutex mutex;
    std::condition_variable asked;
    std::condition_variable answered;
    std::deque<std::shared_ptr<Call>> calls;  // under mutex
    std::chrono::milliseconds limit{};        // under mutex
    bool is_closed = false;                   // under mutex
    bool is_silent = false;                   // under mutex; a call passed its limit and has not come back
    bool has_ended = false;                   // under mutex
  };
  static void serve(const std::shared_ptr<Shared>& shared);
  /// Runs `call` on the thread; it must own all it uses but the store.
  void run(std::function<void(c10d::Store&)> call) const;
  template <class Result, class Function>
  Result ask(Function function) const;

  const std::shared_ptr<Shared> shared_;
  const pid_t owner_pid_;
  std::thread thread_;
};

}  // namespace dbg::broadcast
