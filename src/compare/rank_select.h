// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The values at given places in order, without sorting the others.
#pragma once

#include <cstdint>
#include <vector>

namespace dbg::compare {

/// The values that stand at `ranks` (from 0, ascending, each below `values.size()`, at most 255 of them) once `values`
/// are sorted. Up to 2^32 - 1 values. `Key` is std::uint32_t or std::uint64_t.
template <class Key>
std::vector<Key> select_ranks(const std::vector<Key>& values, const std::vector<std::uint64_t>& ranks);

}  // namespace dbg::compare
