// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Keeps dict keys that were chosen to collide away from c10::Dict, whose table doubles until keys spread.
#pragma once

#include <cstddef>
#include <vector>

namespace dbg::codec {

/// Whether a c10::Dict with keys of these hashes would need a table far larger than their number asks for.
///
/// c10's table looks at the upper bits of hash x constant and doubles when a key lies log2(size) places or more behind
/// the place it wants. A dozen integers that agree in those bits make it grow until memory ends. The table's final size
/// is the first at which every key is near enough, which can be worked out from the hashes alone.
bool keys_collide(std::vector<std::size_t> hashes);

}  // namespace dbg::codec
