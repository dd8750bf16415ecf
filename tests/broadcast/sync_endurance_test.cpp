// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Nothing piles up: a thousand syncs, with some that fail among them, leave memory, files, threads and keys as they
// were.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "broadcast/syncing.h"
#include "support/sanitizers.h"

namespace dbg {
namespace {

using test::run_workers_as_threads;
using test::ScratchSource;
using test::Worker;

struct Usage {
  std::int64_t keys = 0;
  std::int64_t files = 0;
  std::int64_t threads = 0;
  std::int64_t heap_kib = 0;
  std::int64_t resident_kib = 0;
};

std::int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

Usage usage(c10d::Store& store) {
  Usage now;
  now.keys = store.getNumKeys();
  now.files = entries_of("/proc/self/fd");
  now.threads = entries_of("/proc/self/task");
  const struct mallinfo2 heap = ::mallinfo2();
  now.heap_kib = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd) / 1024;
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  now.resident_kib = pages * ::sysconf(_SC_PAGESIZE) / 1024;
  return now;
}

std::vector<NamedParameter> few_weights() {
  return {{"a", at::ones({700})}, {"b", at::ones({3}, at::kByte)}, {"c", at::ones({2000}, at::kHalf)}};
}

// The worker's syncs; worker 0 takes the usage while all stand still, which the next sync's meeting sees to.
void sync_often(const Worker& worker, int syncs, int every_so_often_fails, std::vector<Usage>& usages) {
  const auto broadcaster = worker.make();
  TensorMapSink sink;
  for (int i = 0; i < syncs; ++i) {
    const bool fails = every_so_often_fails > 0 && i % every_so_often_fails == 5;
    if (worker.id == 0 && (i == syncs / 5 || i + 1 == syncs)) usages.push_back(usage(*worker.store));
    try {
      if (worker.is_actor()) {
        ScratchSource source(few_weights(), [&](std::size_t number) {
          if (fails && number == 1) throw std::runtime_error("on purpose");
        });
        broadcaster->send(source);
      } else {
        broadcaster->receive(sink);
      }
      ASSERT_FALSE(fails);
    } catch (const SyncError& error) {
      ASSERT_TRUE(fails) << error.what();
    }
  }
}

void expect_flat(const std::vector<Usage>& usages) {
  ASSERT_EQ(usages.size(), 2U);
  // A peer may be one step further or behind when it is counted.
  EXPECT_LE(usages[1].keys, usages[0].keys + 6);
  EXPECT_LE(usages[1].files, usages[0].files + 6);
  EXPECT_LE(usages[1].threads, usages[0].threads + 2);
  // A sanitizer has an allocator of its own.
  if (test::kUnderAddressSanitizer || test::kUnderThreadSanitizer) return;
  // Torch keeps 136 bytes for each thread that ever waited for a message, and each sync has one on each rank. A leak of
  // 150 bytes a sync beside that shows; what pages the allocator holds besides is its own.
  EXPECT_LE(usages[1].heap_kib, usages[0].heap_kib + 320);
  EXPECT_LE(usages[1].resident_kib, usages[0].resident_kib + 8 * 1024);
}

TEST(SyncEnduranceTest, AThousandSyncsOnOneGroup) {
  std::vector<Usage> usages;
  run_workers_as_threads(
      {{"a"}, {"b"}, test::quick_options()}, [&](const Worker& worker) { sync_often(worker, 1000, 0, usages); },
      std::chrono::seconds(240));
  expect_flat(usages);
}

TEST(SyncEnduranceTest, GroupsMadeAnewAndFailuresAmongThem) {
  test::SyncSetup setup{{"a", "a"}, {"b"}, test::quick_options()};
  setup.options.rebuild_group = true;
  std::vector<Usage> usages;
  run_workers_as_threads(
      setup, [&](const Worker& worker) { sync_often(worker, 100, 10, usages); }, std::chrono::seconds(240));
  expect_flat(usages);
}

TEST(SyncEnduranceTest, AfterTheEndNoKeyIsLeftButCounters) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const test::SyncSetup setup{{"a", "a"}, {"b"}, test::quick_options()};
  test::run_ranks_as_threads(3, [&](int id) {
    const Worker worker{id, setup.role_of(id), setup.index_of(id), store, setup};
    std::vector<Usage> ignored;
    sync_often(worker, 3, 0, ignored);
  });
  // How many meetings there were, of joining and of syncing, is kept: the next ones count on.
  EXPECT_LE(store->getNumKeys(), 3);
}

}  // namespace
}  // namespace dbg
