// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a test process and its rank processes agree on.
#pragma once

#include <string_view>

namespace dbg::test {

inline constexpr const char* kBodyVariable = "DBG_TEST_RANK_BODY";
inline constexpr const char* kArgumentVariable = "DBG_TEST_RANK_ARGUMENT";
inline constexpr const char* kRankVariable = "DBG_TEST_RANK";
inline constexpr const char* kWorldSizeVariable = "DBG_TEST_RANK_COUNT";

/// The rank process's end of a socket: a byte asks for stacks, its end means that the test process is gone.
inline constexpr int kChildSocket = 200;
inline constexpr char kStacksPlease = 's';
inline constexpr std::string_view kEndOfStacks = "=== end of stacks ===";

}  // namespace dbg::test
