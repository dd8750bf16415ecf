// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where encoded bytes go: a file, memory, a test that fails on purpose.
#pragma once

#include <cstddef>

namespace dbg::codec {

/// Takes bytes in order.
class ByteSink {
 public:
  virtual ~ByteSink() = default;

  /// Takes all `size` bytes. Returns 0, or the errno of what went wrong; after an error nothing more is written.
  virtual int write(const void* data, std::size_t size) noexcept = 0;
};

}  // namespace dbg::codec
