// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads whose groups begin at once: without the gate, torch's recorder ends the process now and then.
#include "distributed/recorder_gate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/groups.h"
#include "support/rank_threads.h"

namespace dbg::distributed {
namespace {

std::unique_ptr<GroupHalf> half_of_one() {
  auto half = std::make_unique<GroupHalf>();
  half->name = "alone@0.g0";
  half->label = "alone:cpu";
  half->ranks = {0};
  half->timeout = std::chrono::milliseconds(20000);
  half->backend = test::somebodys_gloo(0, 1, c10::make_intrusive<c10d::HashStore>());
  return half;
}

TEST(RecorderGateTest, TheFirstOperationsOfManyGroupsMayBeginAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kGroups = 60;  // a thread
  std::barrier all_made(kThreads);
  test::run_ranks_as_threads(kThreads, [&](int) {
    std::vector<std::unique_ptr<GroupHalf>> halves;
    for (int i = 0; i < kGroups; ++i) halves.push_back(half_of_one());
    all_made.arrive_and_wait();
    for (const auto& half : halves) {
      const at::Tensor ones = at::ones({2});
      all_reduce(*half, ones);
      EXPECT_EQ(ones.sum().item<double>(), 2.0);
      EXPECT_TRUE(half->is_recorded.load());
    }
  });
}

TEST(RecorderGateTest, OperationsOfGroupsThatAreKnownBeginSideBySide) {
  const auto first = half_of_one();
  const auto second = half_of_one();
  { const RecorderGate alone(*first); }
  { const RecorderGate alone(*second); }
  const RecorderGate one(*first);
  const RecorderGate other(*second);  // would wait for ever if it had to be alone
  SUCCEED();
}

}  // namespace
}  // namespace dbg::distributed
