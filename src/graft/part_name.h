// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The name by which this part speaks in the log.
#pragma once

#include <string_view>

namespace dbg::graft {

inline constexpr std::string_view kPart = "Grafter";

}  // namespace dbg::graft
