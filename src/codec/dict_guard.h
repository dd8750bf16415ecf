// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How large the table of a c10::Dict becomes, which doubles until its keys spread: keys can be chosen so that they
// never do.
#pragma once

#include <cstddef>
#include <vector>

namespace dbg::codec {

/// log2 of the places in the table of a c10::Dict that is made for `keys` keys, before the first of them comes.
int least_table_bits(std::size_t keys);

/// log2 of the places in the table that a c10::Dict with keys of these hashes ends up with; 64 where none will do.
///
/// c10's table looks at the upper bits of hash x constant and doubles when a key lies log2(size) places or more behind
/// the place it wants. A dozen integers that agree in those bits make it grow until memory ends; but so may ordinary
/// ones, by a few doublings: 100 keys that are multiples of 1292 need 8192 places. The table's final size is the first
/// at which every key is near enough, which can be worked out from the hashes alone. What it costs is the caller's to
/// judge.
int table_bits(std::vector<std::size_t> hashes);

}  // namespace dbg::codec
