// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Puts off a thread's cancellation (pthread_cancel) where nothing may unwind.
#pragma once

#include <pthread.h>

namespace dbg::base {

/// While it lives, the calling thread is not cancelled: opening, writing and closing a file are cancellation points,
/// and a cancelled thread unwinds, which ends the process where a function is noexcept. The thread goes on to the next
/// such point, outside. Costs no system call.
class NoCancellation {
 public:
  NoCancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace dbg::base
