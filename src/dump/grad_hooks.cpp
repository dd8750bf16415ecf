// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Hooks on non-leaf tensors, one each, and on leaves, one for good.
#include "dump/grad_hooks.h"

#include <atomic>
#include <iterator>
#include <utility>

namespace dbg::detail {

// A capture, and the step in which its gradient came first.
struct GradHooks::Waiting {
  explicit Waiting(GradCapture given) : capture(std::move(given)) {}

  // Whether a gradient that comes in step `now` is of this capture's backward pass.
  bool takes(std::int64_t now) noexcept {
    std::int64_t first = kNone;
    return arrived_in.compare_exchange_strong(first, now, std::memory_order_relaxed) || first == now;
  }

  static constexpr std::int64_t kNone = -1;
  const GradCapture capture;
  std::atomic<std::int64_t> arrived_in{kNone};
};

struct GradHooks::Leaf {
  using Captures = std::vector<std::shared_ptr<Waiting>>;
  std::mutex mutex;
  // Under mutex: each participant's, of its latest step. Replaced as a whole, so that a hook needs no memory for its
  // look at them.
  std::shared_ptr<const Captures> captures = std::make_shared<const Captures>();
};

void GradHooks::watch(const at::Tensor& tensor, GradCapture capture, StepNow step_now, Arrived arrived) {
  auto waiting = std::make_shared<Waiting>(std::move(capture));
  if (!tensor.is_leaf()) {
    tensor.register_hook([waiting = std::move(waiting), step_now = std::move(step_now),
                          arrived = std::move(arrived)](const at::Tensor& grad) {
      if (waiting->takes(step_now(waiting->capture))) arrived(waiting->capture, grad);
    });
    return;
  }
  std::shared_ptr<Leaf> leaf;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Leaf>& known = leaves_[tensor.unsafeGetTensorImpl()];
    // Expired: the hook is gone, and with it the tensor; this one only has its address.
    leaf = known.lock();
    if (!leaf) {
      leaf = std::make_shared<Leaf>();
      known = leaf;
      is_new = true;
      if (leaves_.size() >= prune_at_) {
        for (auto entry = leaves_.begin(); entry != leaves_.end();) {
          entry = entry->second.expired() ? leaves_.erase(entry) : std::next(entry);
        }
        prune_at_ = 2 * leaves_.size() + 64;
      }
    }
  }
  {
    const std::lock_guard lock(leaf->mutex);
    // Captures of other steps are done with (a later one after a reset, too), whatever their names: a program may
    // number them. An equal one of this step is this one, dumped again.
    auto fresh = std::make_shared<Leaf::Captures>();
    const GradCapture& own = waiting->capture;
    for (const std::shared_ptr<Waiting>& other : *leaf->captures) {
      const GradCapture& known = other->capture;
      const bool is_done = known.participant == own.participant &&
                           (known.step != own.step || (known.name == own.name && known.tags == own.tags));
      if (!is_done) fresh->push_back(other);
    }
    fresh->push_back(std::move(waiting));
    leaf->captures = std::move(fresh);
  }
  if (!is_new) return;
  tensor.register_hook([leaf, step_now = std::move(step_now), arrived = std::move(arrived)](const at::Tensor& grad) {
    std::shared_ptr<const Leaf::Captures> latest;
    {
      const std::lock_guard lock(leaf->mutex);
      latest = leaf->captures;
    }
    for (const std::shared_ptr<Waiting>& one : *latest) {
      if (one->takes(step_now(one->capture))) arrived(one->capture, grad);
    }
  });
}

}  // namespace dbg::detail
