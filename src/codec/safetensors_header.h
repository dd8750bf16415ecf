// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file: read entry by entry and checked, never held as a tree.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codec/byte_source.h"
#include "dbg/safetensors.h"

namespace dbg::codec {

struct SafetensorsHeader {
  /// In the order of their bytes.
  std::vector<SafetensorsInfo> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads and checks the header at the start of `source`.
/// Throws: IoError with the place and the cause.
SafetensorsHeader read_safetensors_header(const ByteSource& source);

}  // namespace dbg::codec
