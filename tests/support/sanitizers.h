// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which sanitizer a test was built with: some things can't be done under one.
#pragma once

namespace dbg::test {

#if defined(__has_feature)  // clang
#define DBG_TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define DBG_TEST_HAS_FEATURE(name) 0
#endif

/// It loses track of a thread's stack when pthread_cancel() unwinds it, and a forked child may find its allocator's
/// locks taken for good by threads that it does not have.
#if defined(__SANITIZE_ADDRESS__) || DBG_TEST_HAS_FEATURE(address_sanitizer)
inline constexpr bool kUnderAddressSanitizer = true;
#else
inline constexpr bool kUnderAddressSanitizer = false;
#endif

/// It ends forked children that start threads, and delivers no signal to a thread that waits.
#if defined(__SANITIZE_THREAD__) || DBG_TEST_HAS_FEATURE(thread_sanitizer)
#define DBG_TEST_UNDER_THREAD_SANITIZER 1
#else
#define DBG_TEST_UNDER_THREAD_SANITIZER 0
#endif
inline constexpr bool kUnderThreadSanitizer = DBG_TEST_UNDER_THREAD_SANITIZER != 0;

#undef DBG_TEST_HAS_FEATURE

}  // namespace dbg::test
