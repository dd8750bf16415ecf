// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Counts forks by a handler that the C library runs in the child.
#include "dump/fork_generation.h"

#include <pthread.h>

#include <atomic>

namespace dbg {
namespace {

std::atomic<unsigned> generation{0};

void in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

unsigned fork_generation() noexcept {
  // No guard of a local static: a child that was forked while another thread was inside one would wait for ever.
  static std::atomic<bool> is_registered{false};
  if (!is_registered.load(std::memory_order_relaxed) && !is_registered.exchange(true)) {
    (void)::pthread_atfork(nullptr, nullptr,
                           &in_child);  // fails only without memory; a child then dumps like its parent
  }
  return generation.load(std::memory_order_relaxed);
}

}  // namespace dbg
