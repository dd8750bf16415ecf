// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Lets memory end early, for tests of what happens then.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "support/sanitizers.h"

namespace dbg::test {

/// A sanitizer needs its shadow, and ends the process where an allocation fails.
inline constexpr bool kMemoryLimitWorks = !kUnderAddressSanitizer && !kUnderThreadSanitizer;

/// While one lives, the process gets `more_bytes` of address space more than it has and no more. Does nothing under a
/// sanitizer.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t more_bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    if (!kMemoryLimitWorks) return;
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit small = before_;
    small.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more_bytes;
    ::setrlimit(RLIMIT_AS, &small);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace dbg::test
