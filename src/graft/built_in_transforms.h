// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The transforms that need no code of the user's. None of them writes into a tensor that it is shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dbg/grafter.h"

namespace dbg::graft {

/// As a user writes them: `identity`, `select:N` ...
std::vector<std::string_view> built_in_names();

/// Whether `word`, the part before a colon, is one of theirs.
bool is_built_in(std::string_view word) noexcept;

/// The transform of that name; empty: `identity`.
/// Throws: ConfigError when the argument behind the colon is missing, superfluous or no number.
GraftTransform make_built_in(const std::string& name);

}  // namespace dbg::graft
