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
/// step would pile up on parameters.
///
/// A capture waits for the gradient of its own dump. The backward pass may come in a later step, and bring several
/// gradients (a graph used twice, accumulation); what arrives in yet another step is of another pass, whose tensor was
/// not dumped, and is left alone.
/// Threads: safe to call from any thread.
class GradHooks {
 public:
  using Arrived = std::function<void(const GradCapture&, const at::Tensor& grad)>;
  /// The step that the participant of a capture is in now. Throws nothing.
  using StepNow = std::function<std::int64_t(const GradCapture&)>;

  /// Calls `arrived` when the gradient of `tensor` (which requires grad) arrives. Keeps neither tensor nor gradient.
  void watch(const at::Tensor& tensor, GradCapture capture, StepNow step_now, Arrived arrived);

 private:
  struct Waiting;
  struct Leaf;
  std::mutex mutex_;
  std::unordered_map<const void*, std::weak_ptr<Leaf>> leaves_;  // under mutex_, by TensorImpl
  std::size_t prune_at_ = 64;                                    // under mutex_
};

}  // namespace dbg::detail
