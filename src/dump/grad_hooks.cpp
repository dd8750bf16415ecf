// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Hooks on non-leaf tensors, one each, and on leaves, one for good.
#include "dump/grad_hooks.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dbg::detail {

void GradHooks::watch(const at::Tensor& tensor, GradCapture capture, Arrived arrived) {
  if (!tensor.is_leaf()) {
    tensor.register_hook([capture = std::move(capture), arrived = std::move(arrived)](const at::Tensor& grad) {
      arrived(capture, grad);
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
    auto& captures = leaf->captures;
    captures.erase(std::remove_if(captures.begin(), captures.end(),
                                  [&capture](const GradCapture& known) {
                                    return known.participant == capture.participant &&
                                           (known.step != capture.step ||
                                            (known.name == capture.name && known.tags == capture.tags));
                                  }),
                   captures.end());
    captures.push_back(std::move(capture));
  }
  if (!is_new) return;
  tensor.register_hook([leaf, arrived = std::move(arrived)](const at::Tensor& grad) {
    std::vector<GradCapture> latest;
    {
      const std::lock_guard lock(leaf->mutex);
      latest = leaf->captures;
    }
    for (const GradCapture& one : latest) arrived(one, grad);
  });
}

}  // namespace dbg::detail
