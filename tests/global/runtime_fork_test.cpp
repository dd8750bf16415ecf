// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A program that forks while its threads use the process's own Dumper for the first time: no child waits for them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "dbg/runtime.h"
#include "support/forked_child.h"
#include "support/sanitizers.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

// This process never uses the global Dumper, so each program that it forks meets it for the first time.
TEST(RuntimeForkTest, AChildOfTheFirstUseNeverWaits) {
  if (test::kUnderThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer ends forked children that start threads";
  constexpr int kPrograms = 60;
  const test::TempFolder folder;
  const test::ScopedEnv enable("DUMPER_ENABLE", "1");
  const test::ScopedEnv unknown("DUMPER_UNKNOWN", "costs a line in the log while the Dumper is made");
  const test::ScopedEnv dir("DUMPER_DIR", folder.path().string());
  const at::Tensor x = at::arange(3, at::kFloat);
  for (int i = 0; i < kPrograms; ++i) {
    const test::ForkedChild program = test::run_forked([&] {
      std::atomic<int> ready{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
          ++ready;
          dbg::dump("x", x);
        });
      }
      while (ready.load() < 2) std::this_thread::yield();
      // A little later in each program, over the time that making the Dumper takes.
      [[maybe_unused]] volatile int spun = 0;
      for (int wait = 0; wait < i * 500; ++wait) spun = wait;
      const test::ForkedChild child = test::run_forked(
          [&] {
            dbg::dump("x", x);
            dbg::step();
            (void)Dumper::global().state();
            return 0;
          },
          std::chrono::seconds(10));
      for (std::thread& thread : threads) thread.join();
      if (Dumper::global().state().counters.written != 2) return 3;
      return child.hung ? 4 : child.exit_code;
    });
    ASSERT_EQ(program.exit_code, 0) << "program " << i << ": " << program.output;
  }
}

}  // namespace
}  // namespace dbg
