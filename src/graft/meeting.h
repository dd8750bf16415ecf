// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How the ranks of both sides find each other and learn who is dbg.
//
// The store is a TCPStore that baseline rank 0 serves; the group is gloo's under the keys of Python's custom groups
// (`<name>/<name>//cpu//`). What the dbg ranks tell each other there stands in graft/hello.h.
#pragma once

#include <cstdint>
#include <memory>

#include "dbg/grafter.h"
#include "dbg/group_coordinator.h"
#include "dbg/participant.h"
#include "distributed/abort_signal.h"

namespace dbg::graft {

/// The group of both sides, from one rank's point of view. Ends with `leave`.
struct Meeting {
  std::shared_ptr<GroupCoordinator> group;
  bool is_all_dbg = false;
  std::int64_t max_bytes = 0;  ///< the longest payload that every dbg rank takes

  /// Waits for nobody. Never throws.
  void leave() noexcept;
};

/// Meets all other ranks, within the configuration's timeout. Every ten seconds a line says who is missing, and at once
/// one says so when a peer uses another backend. Raising `abort` ends it at once; what can't be ended is left behind,
/// and ends by itself, by the timeout. Throws: ConfigError when `self` is of a world of another size than its side's,
/// the sides were told different sizes, or this rank has met in this store before; CommError when someone does not
/// come; Error when it was aborted.
Meeting meet(const std::shared_ptr<const GraftConfig>& config, const std::shared_ptr<const Participant>& self,
             const distributed::AbortSignal& abort);

}  // namespace dbg::graft
