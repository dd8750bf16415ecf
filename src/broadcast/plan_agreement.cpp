// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Two queues that empty each other.
#include "broadcast/plan_agreement.h"

#include "base/formatted.h"
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

std::string PlanAgreement::leftover() const {
  const std::lock_guard lock(mutex_);
  if (!root_weights_.empty()) {
    return formatted("weight {} is {} on the root, and there is none on this rank", num_compared_,
                     text_of(root_weights_.front()));
  }
  if (own_weights_.empty()) return {};
  return formatted("weight {} is {} on this rank, and there is none on the root", num_compared_,
                   text_of(own_weights_.front()));
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
