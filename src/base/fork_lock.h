// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Locks of the process's that a forked child finds free, whatever the parent's threads did at that moment.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace dbg::base {

/// An object that is there before any code runs and never goes. No guard of a local static: a child that was forked
/// while another thread was inside one would wait for that thread for ever.
template <class T>
union Leaked {
  constexpr Leaked() : value() {}
  ~Leaked() {}
  T value;
};

/// What `make` gives: made at the first use by whoever comes first, or by several at once of whom one wins; never
/// destroyed. It waits for nobody, for the reason above.
template <auto make>
const auto& made_once() {
  using Made = decltype(make());
  static std::atomic<const Made*> made{nullptr};
  const Made* known = made.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  std::unique_ptr<const Made> fresh(new Made(make()));
  if (made.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) known = fresh.release();
  return *known;
}

/// Holds a mutex over every fork from the first call on, so that a child finds it free and what it guards whole. Call
/// it before each locking; it costs one load. Only for mutexes under which nothing forks and no other lock is taken.
template <std::mutex& (*mutex)() noexcept>
void hold_over_forks() noexcept {
  static std::atomic<bool> is_registered{false};
  if (is_registered.load(std::memory_order_relaxed) || is_registered.exchange(true)) return;
  // Fails only without memory; forks are then as safe as they are for most programs.
  (void)::pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

}  // namespace dbg::base
