// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whether this build holds the NCCL code. One of two sources of this interface is compiled; callers need no #ifdef.
#pragma once

#include <string>

namespace dbg::distributed {

/// Whether the library was built with NCCL (DBG_WITH_NCCL). Says nothing about a GPU being there.
bool nccl_available() noexcept;

/// Says which NCCL this is: `NCCL 2.28.9 (built against 2.28.9)` or `built without NCCL`.
std::string nccl_version_text();

}  // namespace dbg::distributed
