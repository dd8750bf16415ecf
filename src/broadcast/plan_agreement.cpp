// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Two queues that empty each other.
#include "broadcast/plan_agreement.h"

#include "broadcast/bucket_plan.h"
#include "dbg/error.h"

namespace dbg::broadcast {

void PlanAgreement::add_own(const WeightInfo& weight) {
  const std::lock_guard lock(mutex_);
  own_weights_.push_back(weight);
  compare();
}

void PlanAgreement::add_root(const std::vector<WeightInfo>& weights) {
  const std::lock_guard lock(mutex_);
  root_weights_.insert(root_weights_.end(), weights.begin(), weights.end());
  compare();
}

void PlanAgreement::compare() {
  while (!own_weights_.empty() && !root_weights_.empty()) {
    const auto difference =
        first_difference({root_weights_.front()}, "the root", {own_weights_.front()}, own_, num_compared_);
    if (difference) throw_plan_mismatch(*difference);
    own_weights_.pop_front();
    root_weights_.pop_front();
    ++num_compared_;
  }
}

void throw_plan_mismatch(const std::string& difference) {
  CommFailure failure;
  failure.kind = CommErrorKind::handshake_mismatch;
  failure.operation = "sync";
  failure.cause = "the sources of two actors part: " + difference;
  failure.advice = "make every actor's source hand out the same weights in the same order";
  throw CommError(std::move(failure));
}

}  // namespace dbg::broadcast
