// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A storage larger than the memory one wants to spend: its bytes come when they are walked, and go when the walk is
// past.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace dbg::base {

/// The memory of such a storage: an address for every byte, but bytes only where they were asked for last.
///
/// A tensor over it looks like any other. Whoever reads its elements calls `require` first, as TensorBlocks does; so
/// `describe` and `diff` work on it as they are. An operator of torch does not ask: `load_whole` comes before one.
/// Threads: one thread at a time, over all tensors of the storage.
class WindowedStorage {
 public:
  /// Copies the `count` bytes at `offset` to `to`. May throw.
  using Reader = std::function<void(std::uint64_t offset, void* to, std::size_t count)>;

  /// So many bytes are fetched at once; a range that is larger brings the whole storage, once.
  static constexpr std::uint64_t kWindowBytes = std::uint64_t{32} << 20;

  /// Throws: IoError when there is no address space.
  static c10::Storage make(std::uint64_t size_bytes, Reader reader);

  /// What is behind the storage; nullptr when it is an ordinary one.
  static WindowedStorage* of(const c10::Storage& storage) noexcept;

  WindowedStorage(const WindowedStorage&) = delete;
  WindowedStorage& operator=(const WindowedStorage&) = delete;
  ~WindowedStorage();

  /// Makes the bytes [begin, end) readable; others may go.
  /// Throws: what the reader throws.
  void require(std::uint64_t begin, std::uint64_t end);

 private:
  WindowedStorage(std::byte* memory, std::uint64_t size_bytes, Reader reader);
  static void destroy(void* self);

  std::byte* memory_;
  std::uint64_t size_bytes_;
  Reader reader_;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

/// Brings all bytes of a storage that is windowed; does nothing to others.
/// Throws: what its reader throws.
void load_whole(const c10::Storage& storage);

}  // namespace dbg::base
