// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A sender's payload on the Python twin's wire (graft/python_wire.h), reading half. Knows no group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graft/contribution.h"

namespace dbg::graft {

/// What a sender's payload says. Bytes from outside: never throws but for want of memory, and allocates nothing by a
/// number that the payload's own bytes do not back.
Contribution decode_payload(const void* data, std::size_t size, std::int64_t max_bytes);

}  // namespace dbg::graft
