// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What both wires are asked for at one call, and what they answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/abort_signal.h"
#include "distributed/group_half.h"
#include "graft/contribution.h"

namespace dbg::graft {

/// Which ranks of the group are which side: the baseline's first, then the target's.
struct Sides {
  int baseline = 0;
  int target = 0;

  int size() const noexcept { return baseline + target; }
  bool sends(int rank, GraftDirection direction) const noexcept {
    return (rank < baseline) == (direction == GraftDirection::b2t);
  }
  /// Ranks `[begin, end)` of the group.
  int begin(bool senders, GraftDirection direction) const noexcept {
    return senders == (direction == GraftDirection::b2t) ? 0 : baseline;
  }
  int count(bool senders, GraftDirection direction) const noexcept {
    return senders == (direction == GraftDirection::b2t) ? baseline : target;
  }
};

/// One call on one rank.
struct ExchangeRequest {
  GraftDirection direction = GraftDirection::b2t;
  Contribution own = {};  ///< of a sender; of a receiver only whether it has a tensor to put a value into
  const Tags& tags;
  std::string name = {};
  std::int64_t step = 0;
  std::uint64_t occurrence = 0;  ///< how many calls of this name and step came before
};

struct Exchanged {
  bool met = true;                         ///< false: the sides were at different calls
  std::string note = {};                   ///< then: where which rank is
  std::string not_sent = {};               ///< on senders: why nothing went out; empty when it did
  std::vector<Contribution> senders = {};  ///< on receivers, in rank order
  std::uint64_t bytes_sent = 0;            ///< of tensors
  std::uint64_t bytes_received = 0;
};

/// The group as the wires use it, for one rank.
struct Wire {
  distributed::GroupHalf& half;
  Sides sides;
  std::int64_t max_bytes = 0;         ///< the longest payload that this rank takes
  std::int64_t common_max_bytes = 0;  ///< that every dbg rank takes
  std::chrono::milliseconds timeout{0};
  distributed::AbortSignal* abort = nullptr;
};

}  // namespace dbg::graft
