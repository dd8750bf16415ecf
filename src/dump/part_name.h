// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The name by which this part speaks in the log.
#pragma once

#include <string_view>

namespace dbg::detail {

inline constexpr std::string_view kPart = "Dumper";

}  // namespace dbg::detail
