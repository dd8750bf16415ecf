// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whether a relay's source hands out what the root's does: compared as soon as both sides are known, weight by weight,
// so that a difference shows before data moves, and also when one of the two waits for the other.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "broadcast/header.h"
#include "dbg/weight_source.h"

namespace dbg::broadcast {

/// Threads: safe to call from any thread.
class PlanAgreement {
 public:
  /// `own`: who this rank is, in messages.
  explicit PlanAgreement(std::string own) : own_(std::move(own)) {}

  /// A weight of this rank's source. Throws: CommError (handshake_mismatch) with the weight on both sides.
  void add_own(const WeightInfo& weight);
  /// Weights of the root's source.
  void add_root(const std::vector<WeightInfo>& weights);

  /// The weight that only one side has so far, in words; empty when there is none.
  std::string leftover() const;

 private:
  void compare();

  mutable std::mutex mutex_;
  const std::string own_;
  std::deque<WeightInfo> own_weights_;   // under mutex_; those not yet compared
  std::deque<WeightInfo> root_weights_;  // under mutex_; likewise
  std::size_t num_compared_ = 0;         // under mutex_
};

/// Throws the CommError for a difference between the root's bucket and this rank's.
[[noreturn]] void throw_plan_mismatch(const std::string& difference);

}  // namespace dbg::broadcast
