// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The one line that the console gets for a record.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

namespace dbg {

/// `[Dumper.Value] <path> type=Tensor shape=[2, 3] dtype=float32 device=cpu sample=[...]`. Reads at most a few elements
/// of a tensor, and none of its own faults get out.
std::string console_line(std::string_view kind, std::string_view path, const c10::IValue& value) noexcept;

}  // namespace dbg
