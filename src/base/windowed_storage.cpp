// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reserves addresses, and fills and empties windows of them.
#include "base/windowed_storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::base {

c10::Storage WindowedStorage::make(std::uint64_t size_bytes, Reader reader) {
  // NORESERVE: the promise of memory for all of it is what this storage does without.
  void* memory = ::mmap(nullptr, std::max<std::uint64_t>(size_bytes, 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const int code = errno;
    throw IoError(formatted("no addresses for a storage of {} bytes: {}", size_bytes, errno_text(code)), code);
  }
  auto* self = new WindowedStorage(static_cast<std::byte*>(memory), size_bytes, std::move(reader));
  return {c10::Storage::use_byte_size_t(), size_bytes,
          c10::DataPtr(memory, self, &WindowedStorage::destroy, c10::Device(c10::DeviceType::CPU)), nullptr, false};
}

WindowedStorage* WindowedStorage::of(const c10::Storage& storage) noexcept {
  if (!storage) return nullptr;
  const c10::DataPtr& pointer = storage.data_ptr();
  return pointer.get_deleter() == &WindowedStorage::destroy ? static_cast<WindowedStorage*>(pointer.get_context())
                                                            : nullptr;
}

WindowedStorage::WindowedStorage(std::byte* memory, std::uint64_t size_bytes, Reader reader)
    : memory_(memory), size_bytes_(size_bytes), reader_(std::move(reader)) {}

WindowedStorage::~WindowedStorage() {
  ::munmap(memory_, std::max<std::uint64_t>(size_bytes_, 1));
}

void WindowedStorage::destroy(void* self) {
  delete static_cast<WindowedStorage*>(self);
}

void WindowedStorage::require(std::uint64_t begin, std::uint64_t end) {
  if (begin >= begin_ && end <= end_) return;
  const bool takes_all = end - begin > kWindowBytes;
  const std::uint64_t from = takes_all ? 0 : begin;
  const std::uint64_t to = takes_all ? size_bytes_ : std::min(size_bytes_, begin + kWindowBytes);
  if (end_ > begin_) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t first = begin_ / page * page;
    ::madvise(memory_ + first, end_ - first, MADV_DONTNEED);
  }
  begin_ = end_ = 0;
  reader_(from, memory_ + from, static_cast<std::size_t>(to - from));
  begin_ = from;
  end_ = to;
}

void load_whole(const c10::Storage& storage) {
  if (WindowedStorage* windowed = WindowedStorage::of(storage)) windowed->require(0, storage.nbytes());
}

}  // namespace dbg::base
