// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Keeps the operations that wait under a signal.
#include "distributed/abort_signal.h"

#include <utility>

#include "base/fence.h"

namespace dbg::distributed {

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

}  // namespace dbg::distributed
