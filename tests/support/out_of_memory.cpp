// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The executable's own operator new.
#include "support/out_of_memory.h"

#include <cstdlib>
#include <new>

namespace {

[[maybe_unused]] constinit thread_local bool has_memory = true;

}  // namespace

#if !DBG_TEST_UNDER_THREAD_SANITIZER
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return has_memory ? std::malloc(size != 0 ? size : 1) : nullptr;
}
void* operator new(std::size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
#endif

namespace dbg::test {

OutOfMemory::OutOfMemory() {
  has_memory = false;
}

OutOfMemory::~OutOfMemory() {
  has_memory = true;
}

}  // namespace dbg::test
