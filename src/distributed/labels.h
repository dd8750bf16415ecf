// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A group's label as text: what it may hold, what it is made of, and the unique name that carries it at its front.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dbg::distributed {

/// The longest label, in bytes.
inline constexpr std::size_t kMostLabelBytes = 200;

/// A group's name as it was given, `anonymous` for an empty one.
/// Throws: ConfigError unless it is of letters, digits and `_ - . :`, and short enough with `:device` behind it. (NCCL
/// Inspector's Prometheus output does not escape it, and it is part of store keys.)
std::string checked_group_name(std::string_view name);

/// The same for a name that somebody else gave: what may not stand in a label becomes `_`, what is too long is cut.
std::string sanitised_group_name(std::string_view name);

/// `tp:device`, `tp:cpu`.
std::string label_of(std::string_view group_name, std::string_view half);

/// Ranks as part of a name: `0_1`, `0-3_8`; long lists become their number and a hash.
std::string ranks_text(const std::vector<int>& ranks);

/// What all members know and no other group has: `tp:cpu@0_1.g0`.
std::string unique_group_name(std::string_view label, const std::vector<int>& ranks, std::int64_t generation);

}  // namespace dbg::distributed
