// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Every job once, never too much in hand, errors out.
#include "compare/bounded_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace dbg::compare {
namespace {

TEST(BoundedWorkersTest, EachJobRunsOnceAndDoneCountsThem) {
  std::vector<std::atomic<int>> runs(500);
  std::size_t finished = 0;
  run_bounded(
      runs.size(), {.threads = 4}, [](std::size_t) { return 1; }, [&](std::size_t job) { ++runs[job]; },
      [&](std::size_t done) {
        EXPECT_GT(done, finished);
        finished = done;
      });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_EQ(finished, 500U);
}

TEST(BoundedWorkersTest, NeverMoreBytesInHandThanAllowedButForOneLargeJob) {
  std::atomic<std::uint64_t> in_hand{0};
  std::atomic<std::uint64_t> most{0};
  const auto size = [](std::size_t job) { return job % 7 == 0 ? 1000ULL : 40ULL; };
  run_bounded(200, {.threads = 4, .bytes_in_hand = 100}, size, [&](std::size_t job) {
    const std::uint64_t now = in_hand += size(job);
    std::uint64_t seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    // The other threads get their chance to begin what they must not.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    if (size(job) > 100) {
      EXPECT_EQ(in_hand, size(job)) << "a large job is not alone";
    }
    in_hand -= size(job);
  });
  EXPECT_LE(most, 1000U);
}

TEST(BoundedWorkersTest, TheFirstErrorComesOutAndNoMoreJobsBegin) {
  std::atomic<int> begun{0};
  const auto run = [&] {
    run_bounded(
        1000, {.threads = 3}, [](std::size_t) { return 1; },
        [&](std::size_t job) {
          ++begun;
          if (job >= 5) throw std::runtime_error("from job five on");
        });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_LE(begun, 5 + 3) << "one for each thread";
}

TEST(BoundedWorkersTest, AnErrorBeforeTheWorkComesOutToo) {
  const auto run = [] {
    run_bounded(
        10, {.threads = 2}, [](std::size_t) -> std::uint64_t { throw std::runtime_error("no size"); },
        [](std::size_t) {});
  };
  EXPECT_THROW(run(), std::runtime_error);
}

TEST(BoundedWorkersTest, NoJobsAndNoThreadsAreFine) {
  run_bounded(0, {}, {}, {});
  int runs = 0;
  run_bounded(
      3, {.threads = 0}, [](std::size_t) { return 0; }, [&](std::size_t) { ++runs; });
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace dbg::compare
