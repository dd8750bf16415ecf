// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Starts the threads, waits for them, reports.
#include "support/rank_threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "dbg/participant.h"
#include "support/stderr_line.h"
#include "support/thread_stacks.h"

namespace dbg::test {
namespace {

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> is_done;       // per rank
  std::exception_ptr first_error;  // of the rank that failed first
};

void run_rank(int rank, int world_size, const std::function<void(int)>& body, Progress& progress) {
  name_this_thread(formatted("rank {}", rank));
  std::exception_ptr error;
  try {
    const ParticipantScope bound(std::make_shared<const Participant>(rank, world_size, rank));
    const testing::ScopedTrace trace("", 0, formatted("rank {} of {}", rank, world_size));
    body(rank);
  } catch (...) {
    error = std::current_exception();
    write_to_stderr(formatted("rank {} of {} failed: {}\n", rank, world_size, base::describe_current_exception()));
  }
  const std::lock_guard lock(progress.mutex);
  progress.is_done[static_cast<std::size_t>(rank)] = true;
  if (error && !progress.first_error) progress.first_error = error;
  progress.changed.notify_all();
}

bool all_done(const Progress& progress) {
  for (const bool is_done : progress.is_done) {
    if (!is_done) return false;
  }
  return true;
}

[[noreturn]] void report_hang(const Progress& progress, std::chrono::milliseconds limit) {
  std::string text = "these ranks are not done after " + std::to_string(limit.count()) + " ms:";
  for (std::size_t rank = 0; rank < progress.is_done.size(); ++rank) {
    if (!progress.is_done[rank]) text += formatted(" {}", rank);
  }
  write_to_stderr(text + "\n" + stacks_of_other_threads());
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

void run_ranks_as_threads(int world_size, const std::function<void(int rank)>& body, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Progress progress;
  progress.is_done.assign(static_cast<std::size_t>(world_size), false);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([rank, world_size, &body, &progress] { run_rank(rank, world_size, body, progress); });
  }
  {
    std::unique_lock lock(progress.mutex);
    if (!progress.changed.wait_until(lock, deadline, [&progress] { return all_done(progress); })) {
      report_hang(progress, limit);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (progress.first_error) std::rethrow_exception(progress.first_error);
}

}  // namespace dbg::test
