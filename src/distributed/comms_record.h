// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The event that torch's profiler needs to put "Process Group Name" and "Process Group Description" into a trace.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "distributed/group_half.h"

namespace dbg::distributed {

/// What a trace shows of one operation.
struct CallShape {
  std::int64_t in_elements = 0;
  std::int64_t out_elements = 0;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  int peer = -1;  ///< of a message between two: the other one's rank in the group
  /// What else the members have to pass alike, in words; only where the group compares. Not in the trace.
  std::string terms = {};
};

/// An event `record_param_comms` that lasts as long as this object, as torch's NCCL backend emits it for itself and its
/// gloo one does not. Nothing is made while no profiler listens.
/// Threads: made and destroyed on one thread.
class CommsRecord {
 public:
  CommsRecord(const GroupHalf& half, std::string_view operation, std::uint64_t sequence, const CallShape& shape);
  ~CommsRecord();
  CommsRecord(const CommsRecord&) = delete;
  CommsRecord& operator=(const CommsRecord&) = delete;

 private:
  struct Event;
  std::unique_ptr<Event> event_;
};

}  // namespace dbg::distributed
