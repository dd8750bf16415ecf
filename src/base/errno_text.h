// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// An errno in words.
#pragma once

#include <cstring>
#include <string>
#include <system_error>

#include "base/formatted.h"

namespace dbg::base {

/// "No space left on device (ENOSPC)". Threads: safe to call from any thread (strerror is not).
inline std::string errno_text(int code) {
  const char* name = ::strerrorname_np(code);
  return formatted("{} ({})", std::generic_category().message(code), name != nullptr ? name : "unknown errno");
}

}  // namespace dbg::base
