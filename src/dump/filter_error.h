// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How a wrong expression is reported: the column, the reason, the expression, and a caret below the place.
#pragma once

#include <cstddef>
#include <string_view>

namespace dbg::filter {

/// The column of a byte of `source`: code points from 1.
std::size_t column_of(std::string_view source, std::size_t byte);

/// Throws: ConfigError `filter: column N: reason`, then the expression (around the place, when it is long) and a caret.
[[noreturn]] void fail_at(std::string_view source, std::size_t byte, std::string_view reason);

/// The first `most` code points of `source`. (A warning quotes an expression, which may be long.)
std::string_view clipped(std::string_view source, std::size_t most);

}  // namespace dbg::filter
