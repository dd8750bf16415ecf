// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A line on standard error at once, whole, whatever the streams hold.
#pragma once

#include <unistd.h>

#include <string>

namespace dbg::test {

inline void write_to_stderr(const std::string& text) {
  const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(ignored);
}

}  // namespace dbg::test
