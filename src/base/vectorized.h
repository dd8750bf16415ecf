// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Runs a loop with the widest vectors this machine has, in a library that is built for the least of its kind.
#pragma once

/// Before the body of a lambda that `vectorized` runs, and of those it calls: only what is inlined gets the wider
/// vectors.
#define DBG_INLINED __attribute__((always_inline))

namespace dbg::base {

#if defined(__x86_64__)
template <class Loop>
__attribute__((target("avx2"))) auto with_avx2(const Loop& loop) {
  return loop();
}
#endif

/// Runs `loop`, a lambda marked DBG_INLINED, and returns what it returns; sums that are its own variables stay in
/// registers, as those that it captures may not. Its results are the same with any vectors: no operation is fused with
/// another (AVX2 without FMA), and the order of sums is the loop's own.
template <class Loop>
auto vectorized(const Loop& loop) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return with_avx2(loop);
#endif
  return loop();
}

}  // namespace dbg::base
