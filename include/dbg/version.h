// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The version of dbg, of the headers at compile time and of the library at run time.
#pragma once

#include "dbg/export.h"

#define DBG_VERSION_MAJOR 0
#define DBG_VERSION_MINOR 1
#define DBG_VERSION_PATCH 0

namespace dbg {

/// Returns the version of the linked library as "major.minor.patch".
DBG_API const char* version() noexcept;

/// Returns the version of the libtorch that the linked library was compiled against.
DBG_API const char* compiled_torch_version() noexcept;

}  // namespace dbg
