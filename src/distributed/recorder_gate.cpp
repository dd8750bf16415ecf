// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
#include "distributed/recorder_gate.h"

#include <shared_mutex>

namespace dbg::distributed {
namespace {

std::shared_mutex gate;

}  // namespace

RecorderGate::RecorderGate(GroupHalf& half) : half_(half) {
  if (half.is_recorded.load(std::memory_order_acquire)) {
    gate.lock_shared();
    way_ = Way::among_others;
  } else {
    gate.lock();
    way_ = Way::alone;
  }
}

RecorderGate::~RecorderGate() {
  if (way_ == Way::among_others) {
    gate.unlock_shared();
    return;
  }
  half_.is_recorded.store(true, std::memory_order_release);
  gate.unlock();
}

}  // namespace dbg::distributed
