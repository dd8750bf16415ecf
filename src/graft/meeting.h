// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How the ranks of both sides find each other and learn who is dbg.
//
// The store is a TCPStore that baseline rank 0 serves; the group is gloo's under the keys of Python's custom groups
// (`<name>/<name>//cpu//`). Before a dbg rank makes its backend it leaves `dbg_graft/<name>/<rank>` in the store:
// "<frame version> <baseline ranks> <target ranks>". Once the backend stands, all ranks have been there, so that a
// rank without such a key is Python: nobody waits to learn that.
#pragma once

#include <memory>
#include <string>

#include "dbg/grafter.h"
#include "dbg/group_coordinator.h"
#include "dbg/participant.h"
#include "distributed/tracked_store.h"
#include "graft/exchange.h"

namespace dbg::graft {

/// The group of both sides, from one rank's point of view. Ends with `leave`.
struct Meeting {
  std::shared_ptr<GroupCoordinator> group;
  c10::intrusive_ptr<distributed::TrackedStore> hello;  ///< what says that this rank is dbg
  bool is_all_dbg = false;

  /// Waits for nobody. Never throws.
  void leave() noexcept;
};

/// Meets all other ranks, within the configuration's timeout. Every ten seconds a line says who is missing, and at once
/// one says so when a peer uses another backend.
/// Throws: ConfigError when `self` is of a world of another size than its side's, or the sides were told different
/// sizes; CommError when someone does not come.
Meeting meet(const GraftConfig& config, const Participant& self);

}  // namespace dbg::graft
