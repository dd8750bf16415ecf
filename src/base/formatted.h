// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Formats a text with fmt, whose machinery is compiled once: header-only fmt would put all of it into every source that
// formats a line, at six seconds each.
#pragma once

#include <fmt/format.h>

#include <string>

namespace dbg {

std::string vformatted(fmt::string_view text, fmt::format_args arguments);

/// As fmt::format(): the text is checked against the arguments at compile time. Throws std::bad_alloc.
template <typename... Arguments>
std::string formatted(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return vformatted(text, fmt::make_format_args(arguments...));
}

}  // namespace dbg
