// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the caller's thread and the wire's thread of one rank hand each other: buckets one way, free memory the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "broadcast/transport.h"
#include "distributed/abort_signal.h"

namespace dbg::broadcast {

/// Thrown to a thread that waits while the sync ends for a cause that is known elsewhere.
struct Interrupted {};

/// Memory for buckets, kept from sync to sync.
/// Threads: one thread at a time.
class BucketMemory {
 public:
  /// One more piece of at least `size` bytes; one that was given back when it is large enough.
  at::Tensor take(std::uint64_t size);
  void give_back(at::Tensor memory);
  void clear();
  std::uint64_t size_bytes() const;

 private:
  std::vector<at::Tensor> idle_;
};

/// A bucket on its way between the threads.
struct BucketItem {
  ControlMessage message;
  at::Tensor memory{};  ///< what is sent or was received; undefined where there is nothing
  at::Tensor
      slot{};  ///< the exchange's memory that goes with it: `memory` itself, unless a weight is sent from where it lies
};

/// At most `depth` buckets are in a caller's or the wire's hands at once; who wants one more waits.
///
/// Waits end when the signal is raised, by Interrupted. Threads: safe to call from any thread.
class BucketExchange {
 public:
  BucketExchange(std::vector<at::Tensor> memory, std::shared_ptr<distributed::AbortSignal> signal);

  /// Memory that nobody uses. Waits for it.
  at::Tensor acquire();
  /// The same without waiting.
  std::optional<at::Tensor> try_acquire();
  void release(at::Tensor memory);

  void push(BucketItem item);
  /// The same once fewer than `most` buckets wait to be popped.
  void push_below(std::size_t most, BucketItem item);
  /// Waits for a bucket.
  BucketItem pop();
  /// Waits for a bucket or until somebody waits for memory: nullopt then.
  std::optional<BucketItem> pop_unless_memory_is_wanted();

  /// The wire has no objection to the last item, and asks for no more.
  void close();
  /// Waits for that.
  void await_closed();

  /// Wakes all that wait, to look at the signal.
  void wake();
  /// All memory, once the sync is over. What is missing is still in use, and stays there.
  std::vector<at::Tensor> take_back();
  /// The most buckets that were in use at once.
  std::size_t most_in_use() const;

 private:
  template <class Ready>
  void wait_until(std::unique_lock<std::mutex>& lock, const Ready& is_ready);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> free_;  // under mutex_
  std::deque<BucketItem> items_;  // under mutex_
  int num_waiting_ = 0;           // under mutex_
  bool is_closed_ = false;        // under mutex_
  std::size_t total_;
  std::size_t most_in_use_ = 0;  // under mutex_
  const std::shared_ptr<distributed::AbortSignal> signal_;
};

}  // namespace dbg::broadcast
