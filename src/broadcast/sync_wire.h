// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the wire's thread of each role does: takes buckets from the exchange, or brings them there.
#pragma once

#include <memory>

#include "broadcast/plan_agreement.h"
#include "broadcast/sync_run.h"
#include "broadcast/wire_thread.h"

namespace dbg::broadcast {

/// Starts the thread. It ends after the commit record, or for a failure, of which the other ranks then know.
std::unique_ptr<WireThread> start_root_wire(const std::shared_ptr<SyncRun>& run);
/// `agreement`: what the relay's own source has said so far.
std::unique_ptr<WireThread> start_relay_wire(const std::shared_ptr<SyncRun>& run,
                                             const std::shared_ptr<PlanAgreement>& agreement);
std::unique_ptr<WireThread> start_consumer_wire(const std::shared_ptr<SyncRun>& run);

}  // namespace dbg::broadcast
