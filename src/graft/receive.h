// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a receiver does with what it got: transform, check, log, and, last of all, copy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dbg/grafter.h"
#include "dbg/tensor_info.h"
#include "graft/contribution.h"

namespace dbg::graft {

/// One call on a receiver.
struct ReceiveRequest {
  const GraftConfig& config;
  const Tags& tags;
  const c10::IValue& target;  ///< what was dumped
  GraftDirection direction = GraftDirection::b2t;
  int receiver_rank = 0;
  int receiver_count = 1;
  GraftPlace place = {};
  std::vector<Contribution> senders = {};
};

enum class ReceiveOutcome { grafted, failed, refused, empty };

struct ReceiveResult {
  ReceiveOutcome outcome = ReceiveOutcome::grafted;
  std::string cause = {};  ///< unless grafted
};

/// Replaces the target's values, or leaves it as it is to the bit.
///
/// Foreign code: the transform, which sees a copy of the target. Never throws but for a cancelled thread.
ReceiveResult receive(ReceiveRequest request);

/// What the log says of a difference: its numbers, or why there are none.
std::string difference_text(const TensorDiff& difference);

/// Whether a dumped value can be written into: a strided tensor with memory whose elements do not share it.
/// Returns why not, empty when it can.
std::string why_not_writable(const c10::IValue& value);

}  // namespace dbg::graft
