// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Takes the calling thread's memory away, for executables that link support/out_of_memory.cpp.
#pragma once

#include "support/sanitizers.h"

namespace dbg::test {

/// clang's ThreadSanitizer insists on its own operator new.
inline constexpr bool kOutOfMemoryWorks = !kUnderThreadSanitizer;

/// While one lives, `new` throws std::bad_alloc on this thread.
class OutOfMemory {
 public:
  OutOfMemory();
  ~OutOfMemory();
  OutOfMemory(const OutOfMemory&) = delete;
  OutOfMemory& operator=(const OutOfMemory&) = delete;
};

}  // namespace dbg::test
