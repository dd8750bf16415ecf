// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The harness of ranks as threads: binding, failures, hangs.
#include "support/rank_threads.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <stdexcept>
#include <string>

#include "dbg/participant.h"
#include "support/rank_processes.h"
#include "support/waits.h"

namespace dbg::test {
namespace {

TEST(RankThreadsTest, EachRankRunsOnceBoundToItsParticipant) {
  std::atomic<int> mask{0};
  run_ranks_as_threads(4, [&mask](int rank) {
    EXPECT_EQ(current_participant()->rank(), rank);
    EXPECT_EQ(current_participant()->world_size(), 4);
    EXPECT_EQ(current_participant()->local_rank(), rank);
    mask |= 1 << rank;
  });
  EXPECT_EQ(mask, 0b1111);
}

TEST(RankThreadsTest, TheFirstFailureIsThrownAgain) {
  std::latch rank_1_failed(1);
  // At the end of its thread, when its failure has been noted.
  struct Tell {
    std::latch* told = nullptr;
    ~Tell() {
      if (told != nullptr) told->count_down();
    }
  };
  std::string words;
  try {
    run_ranks_as_threads(3, [&](int rank) {
      if (rank == 1) {
        thread_local Tell tell;
        tell.told = &rank_1_failed;
        throw std::out_of_range("from rank 1");
      }
      rank_1_failed.wait();
      throw std::runtime_error("from another");
    });
  } catch (const std::out_of_range& error) {
    words = error.what();
  }
  EXPECT_EQ(words, "from rank 1");
}

TEST(RankThreadsTest, AFailedExpectationCounts) {
  EXPECT_NONFATAL_FAILURE_ON_ALL_THREADS(
      run_ranks_as_threads(2, [](int rank) { EXPECT_NE(rank, 1) << "seen on rank 1"; }), "seen on rank 1");
}

DBG_RANK_BODY(rank_thread_that_hangs) {
  run_ranks_as_threads(
      3,
      [](int rank) {
        if (rank == 2) wait_forever_here();
      },
      std::chrono::milliseconds(300));
}

TEST(RankThreadsTest, AHangEndsTheProcessAndShowsTheStacks) {
  const auto results = spawn_ranks({.body = "rank_thread_that_hangs"});
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_FALSE(results[0].timed_out);
  EXPECT_NE(results[0].output.find("these ranks are not done after 300 ms: 2\n"), std::string::npos);
  EXPECT_NE(results[0].output.find("(rank 2)"), std::string::npos);
  EXPECT_NE(results[0].output.find("wait_forever_here"), std::string::npos) << "the stack has no names";
}

}  // namespace
}  // namespace dbg::test
