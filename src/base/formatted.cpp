// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
#include "base/formatted.h"

namespace dbg {

std::string vformatted(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

}  // namespace dbg
