// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What each dbg rank leaves in the store before the sides meet, and what all conclude from it.
//
// Key `dbg_graft/<name>/<rank>`: "<frame version> <baseline ranks> <target ranks> <longest payload taken, in bytes>",
// with "plain" for the version where the rank was told to speak Python's wire. Once the backend stands, all ranks have
// been there, so that one without such a key is Python: nobody waits to learn that. The key is never taken away, so
// that all come to the same answer whatever becomes of one meanwhile; it goes with the store. A rank that finds its own
// key has met here before, and would meet what that left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dbg/grafter.h"
#include "distributed/tracked_store.h"
#include "graft/exchange.h"

namespace dbg::graft {

/// `baseline rank 0`, of a rank of the group.
std::string name_of_rank(const Sides& sides, int rank);

/// The keys of one group name.
c10::intrusive_ptr<distributed::TrackedStore> hello_store(const c10::intrusive_ptr<c10d::Store>& store,
                                                          const std::string& group_name);

/// Leaves this rank's word. Throws: ConfigError when it has met in this store before.
void say_hello(distributed::TrackedStore& hello, const GraftConfig& config, const Sides& sides, int rank);

/// What the words of all ranks come to.
struct Hellos {
  bool are_all_dbg = false;    ///< all speak this version of dbg's own wire
  std::int64_t max_bytes = 0;  ///< the longest payload that every dbg rank takes
  std::vector<int> silent;     ///< ranks that left no word: Python, or not there
};

/// Throws: ConfigError where a rank was told other sizes.
Hellos read_hellos(distributed::TrackedStore& hello, const GraftConfig& config, const Sides& sides);

}  // namespace dbg::graft
