// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Removing what earlier runs left: their records when asked, their half-written files always, and nothing else.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dbg {

/// What a clean-up did.
struct CleanupReport {
  std::vector<std::string> removed;  ///< folders of which all records are gone
  std::vector<std::string> kept;     ///< folders left as they are, each with the reason: `dump_x: holds 'notes.txt'`
  std::uint64_t records_removed = 0;
};

/// Removes the folders `dump_*` of `dir`, and `dir/exp_name`, that hold records only (of dbg or of the Python twin) and
/// of these all those older than `claimed_ns`. A folder that holds anything else, or is a link, is left alone; records
/// that are newer belong to the run that is on, and stay.
/// Throws: IoError when `dir` can't be listed; what can't be removed is in `kept`.
CleanupReport clean_up_previous(const std::string& dir, const std::string& exp_name, std::int64_t claimed_ns);

/// Removes what processes that were killed left half-written in the folders `dump_*` of `dir`, those of the latest runs
/// first, until `patience` is over; nothing else. Returns how many files went. Never throws: what can't be looked at
/// stays.
std::size_t remove_leftovers(const std::string& dir, std::chrono::milliseconds patience) noexcept;

}  // namespace dbg
