// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A number as the reports' JSON holds it, which has no word for what is not finite.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace dbg::compare {

/// The number; `"nan"`, `"inf"` or `"-inf"` where JSON has none.
inline nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

}  // namespace dbg::compare
