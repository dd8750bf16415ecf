// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The library's own version and that of the libtorch it was compiled against.
#include "dbg/version.h"

#include <torch/version.h>

#define DBG_TEXT_(x) #x
#define DBG_TEXT(x) DBG_TEXT_(x)

namespace dbg {

const char* version() noexcept {
  return DBG_TEXT(DBG_VERSION_MAJOR) "." DBG_TEXT(DBG_VERSION_MINOR) "." DBG_TEXT(DBG_VERSION_PATCH);
}

const char* compiled_torch_version() noexcept {
  return DBG_TEXT(TORCH_VERSION_MAJOR) "." DBG_TEXT(TORCH_VERSION_MINOR) "." DBG_TEXT(TORCH_VERSION_PATCH);
}

}  // namespace dbg
