// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// From an expression's text to a program.
#pragma once

#include <memory>
#include <string_view>

#include "dump/filter_program.h"

namespace dbg::filter {

/// Compiles `text`, which is not blank. What does not depend on tags is computed here, once.
/// Throws: ConfigError with the column, a caret line and the reason.
std::unique_ptr<const Program> parse_program(std::string_view text);

}  // namespace dbg::filter
