// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Gradients that arrive later: a hook on a dumped tensor, which remembers what the dump's call knew.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "dbg/participant.h"
#include "dbg/tags.h"

namespace dbg::detail {

/// What a dump leaves behind for the gradient of its tensor: autograd calls from threads of its own.
struct GradCapture {
  std::shared_ptr<const Participant> participant;
  std::string name;  ///< of the value
  std::string recompute_status;
  Tags tags;  ///< the call's tags and the context, of dump time
  std::int64_t step = 0;
  bool save = true;
  std::string dims;  ///< the gradient's
};

/// Registers hooks. A leaf gets one hook for good, however often it is dumped, and its latest captures count: a hook a
/// step would pile up on parameters. Threads: safe to call from any thread.
class GradHooks {
 public:
  using Arrived = std::function<void(const GradCapture&, const at::Tensor& grad)>;

  /// Calls `arrived` when the gradient of `tensor` (which requires grad) arrives. Keeps neither tensor nor gradient.
  void watch(const at::Tensor& tensor, GradCapture capture, Arrived arrived);

 private:
  struct Leaf {
    std::mutex mutex;
    std::vector<GradCapture> captures;  // under mutex: each participant's, of its latest step
  };
  std::mutex mutex_;
  std::unordered_map<const void*, std::weak_ptr<Leaf>> leaves_;  // under mutex_, by TensorImpl
  std::size_t prune_at_ = 64;                                    // under mutex_
};

}  // namespace dbg::detail
