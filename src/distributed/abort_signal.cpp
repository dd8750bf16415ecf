// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Keeps the operations that wait under a signal, and asks a store for its key.
#include "distributed/abort_signal.h"

#include <utility>

#include "base/fence.h"
#include "base/log.h"
#include "dbg/error.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {
namespace {

constexpr std::chrono::milliseconds kPoll{50};

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

AbortWatch::AbortWatch(const c10::intrusive_ptr<c10d::Store>& store, std::string key,
                       std::shared_ptr<AbortSignal> signal)
    : store_(clone_of(store)), key_(std::move(key)), signal_(std::move(signal)), thread_([this] { watch(); }) {}

AbortWatch::~AbortWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void AbortWatch::watch() {
  const auto refusal = base::run_fenced([&] {
    std::unique_lock lock(mutex_);
    while (!is_stopped_) {
      lock.unlock();
      if (store_->check({key_})) {
        signal_->raise(store_->get_to_str(key_));
        return;
      }
      lock.lock();
      stopped_.wait_for(lock, kPoll, [&] { return is_stopped_; });
    }
  });
  if (refusal) {
    base::log(LogLevel::warning, "AbortWatch", "nobody watches '{}' any more: the store fails with: {}", key_,
              *refusal);
  }
}

void raise_through_store(c10d::Store& store, const std::string& key, const std::string& cause) {
  const auto started = std::chrono::steady_clock::now();
  if (const auto refusal = base::run_fenced([&] { store.set(key, cause); })) {
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
