// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Finds a dtype by name, so that dtypes younger than the oldest supported torch need no version test.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace dbg::codec {

/// The dtype that this torch's C++ calls `name` ("Float8_e8m0fnu"); nullopt where it has none of that name.
inline std::optional<c10::ScalarType> dtype_called(std::string_view name) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (dtype != c10::ScalarType::Undefined && name == c10::toString(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace dbg::codec
