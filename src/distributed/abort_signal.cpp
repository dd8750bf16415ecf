// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Keeps the operations that wait under a signal, and asks a store for its key.
#include "distributed/abort_signal.h"

#include <condition_variable>
#include <utility>

#include "base/fence.h"
#include "base/log.h"
#include "dbg/error.h"
#include "distributed/store_caller.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
// For the answer to a question that is under way when the watch ends.
constexpr std::chrono::milliseconds kPatience{500};
constexpr std::chrono::seconds kRaising{5};

}  // namespace

void AbortSignal::raise(std::string cause) {
  std::list<c10::intrusive_ptr<c10d::Work>> waiting;
  {
    const std::lock_guard lock(mutex_);
    if (cause_) return;
    cause_ = std::move(cause);
    waiting = waiting_;
  }
  // Not under the lock: abort is the backend's code, and the waiting thread takes the lock when it leaves.
  for (const auto& work : waiting) {
    base::run_fenced([&] { work->abort(); });
  }
}

std::optional<std::string> AbortSignal::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

AbortSignal::Scope::Scope(AbortSignal* signal, c10::intrusive_ptr<c10d::Work> work) : signal_(signal) {
  if (signal_ == nullptr) return;
  bool is_raised = false;
  {
    const std::lock_guard lock(signal_->mutex_);
    is_raised = signal_->cause_.has_value();
    place_ = signal_->waiting_.insert(signal_->waiting_.end(), work);
  }
  if (is_raised) base::run_fenced([&] { work->abort(); });
}

AbortSignal::Scope::~Scope() {
  if (signal_ == nullptr) return;
  const std::lock_guard lock(signal_->mutex_);
  signal_->waiting_.erase(place_);
}

struct AbortWatch::Shared {
  c10::intrusive_ptr<c10d::Store> store;
  std::string key;
  std::shared_ptr<AbortSignal> signal;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_stopped = false;  // under mutex: nobody wants to hear any more
  bool is_over = false;     // under mutex: the thread asks nothing any more
};

AbortWatch::AbortWatch(const c10::intrusive_ptr<c10d::Store>& store, std::string key,
                       std::shared_ptr<AbortSignal> signal)
    : shared_(std::make_shared<Shared>()) {
  shared_->store = store;
  shared_->key = std::move(key);
  shared_->signal = std::move(signal);
  thread_ = std::thread([shared = shared_] {
    watch(*shared);
    const std::lock_guard lock(shared->mutex);
    shared->is_over = true;
    shared->changed.notify_all();
  });
}

AbortWatch::~AbortWatch() {
  std::unique_lock lock(shared_->mutex);
  shared_->is_stopped = true;
  shared_->changed.notify_all();
  const bool is_over = shared_->changed.wait_for(lock, kPatience, [&] { return shared_->is_over; });
  lock.unlock();
  if (is_over) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void AbortWatch::watch(Shared& shared) {
  const auto refusal = base::run_fenced([&] {
    // Here, since a client of a store that is silent waits for it already when it is made.
    const c10::intrusive_ptr<c10d::Store> store = clone_of(shared.store);
    std::unique_lock lock(shared.mutex);
    while (!shared.is_stopped) {
      lock.unlock();
      std::optional<std::string> cause;
      if (store->check({shared.key})) cause = store->get_to_str(shared.key);
      lock.lock();
      if (cause && !shared.is_stopped) {
        lock.unlock();
        shared.signal->raise(*std::move(cause));
        return;
      }
      shared.changed.wait_for(lock, kPoll, [&] { return shared.is_stopped; });
    }
  });
  if (refusal) {
    base::log(LogLevel::warning, "AbortWatch", "nobody watches '{}' any more: the store fails with: {}", shared.key,
              *refusal);
  }
}

void raise_through_store(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
                         const std::string& cause) {
  const auto started = std::chrono::steady_clock::now();
  const auto refusal = base::run_fenced([&] {
    StoreCaller::of(store)->call(
        "set", [key, cause](c10d::Store& inner) { inner.set(key, cause); }, started + kRaising);
  });
  if (refusal) {
    CommFailure failure;
    failure.kind = CommErrorKind::store_down;
    failure.operation = "abort";
    failure.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started);
    failure.cause = "the store did not take the key '" + key + "': " + *refusal;
    failure.advice = "the other ranks end at their own deadlines";
    throw CommError(std::move(failure));
  }
}

}  // namespace dbg::distributed
