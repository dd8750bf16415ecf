// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What tests of failing operations share: catching the error in time, and threads that wait for each other.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "dbg/error.h"
#include "distributed/collective_call.h"

namespace dbg::test {

/// What the operation threw. It must come within the deadline and the overrun that is promised.
inline CommFailure failure_within(std::chrono::milliseconds timeout, const std::function<void()>& operation) {
  const auto started = std::chrono::steady_clock::now();
  try {
    operation();
  } catch (const CommError& error) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started);
    EXPECT_LT(took, timeout + distributed::kLongestOverrun) << error.what();
    EXPECT_LE(error.failure().elapsed, took + std::chrono::milliseconds(1));
    EXPECT_GE(error.failure().elapsed, took - std::chrono::milliseconds(500)) << error.what();
    return error.failure();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Blocks threads until `count` of them are there.
class Meeting {
 public:
  explicit Meeting(int count) : awaited_(count) {}
  void arrive() {
    std::unique_lock lock(mutex_);
    if (--awaited_ == 0) all_are_here_.notify_all();
    if (!all_are_here_.wait_for(lock, std::chrono::seconds(20), [&] { return awaited_ <= 0; })) {
      ADD_FAILURE() << "the others did not come";
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_are_here_;
  int awaited_;
};

inline void expect_describes(const CommFailure& failure, const distributed::GroupHalf& half,
                             const std::string& operation) {
  EXPECT_EQ(failure.group, half.name);
  EXPECT_EQ(failure.label, "tp:cpu");
  EXPECT_EQ(failure.ranks, half.ranks);
  EXPECT_EQ(failure.rank, half.global_rank());
  EXPECT_EQ(failure.operation, operation);
  EXPECT_FALSE(failure.cause.empty());
  EXPECT_FALSE(failure.advice.empty());
}

}  // namespace dbg::test
