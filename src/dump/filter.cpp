// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The compiled filter.
#include "dump/filter.h"

#include "dbg/error.h"

namespace dbg {

struct Filter::Program {};

Filter Filter::parse(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n\f") != std::string_view::npos)
    throw ConfigError("the filter language is not built yet");
  return {};
}

bool Filter::matches(const TagLookup&) const noexcept {
  return true;
}
bool Filter::matches(const Tags&) const noexcept {
  return true;
}
std::uint64_t Filter::mismatches() const noexcept {
  return 0;
}

}  // namespace dbg
