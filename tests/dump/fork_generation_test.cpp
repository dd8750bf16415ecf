// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A forked child's Dumper is off, says so once, and never waits for a thread that stayed in the parent.
#include "dump/fork_generation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/log.h"
#include "dbg/participant.h"
#include "dump/atomic_file.h"
#include "support/forked_child.h"
#include "support/record_files.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using test::ForkedChild;
using test::run_forked;
using testing::HasSubstr;
using testing::SizeIs;

std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ForkGenerationTest, GrowsInTheChildOnly) {
  const unsigned before = fork_generation();
  const ForkedChild child = run_forked([&] {
    const ForkedChild grandchild = run_forked([&] { return static_cast<int>(fork_generation() - before); });
    return grandchild.exit_code == 2 && fork_generation() == before + 1 ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(fork_generation(), before);
}

// Bytes that this process has read so far; nullopt when the kernel does not tell.
std::optional<std::uint64_t> bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  std::uint64_t bytes = 0;
  if (file >> key >> bytes && key == "rchar:") return bytes;
  return std::nullopt;
}

// A temporary file's name says which process writes it; a child that dumps must not find that out for each record.
TEST(ForkedFileTest, AChildAsksOnceWhoItIs) {
  if (!bytes_read()) GTEST_SKIP() << "no /proc/self/io here";
  const test::TempFolder folder;
  const auto write_file = [&](const std::string& name) {
    return dumping::AtomicFile(folder.path().string()).publish(name);
  };
  EXPECT_TRUE(write_file("parent"));
  const ForkedChild child = run_forked([&] {
    if (!write_file("child")) return 2;
    const std::uint64_t before = *bytes_read();
    for (int i = 0; i < 100; ++i) {
      if (!write_file("child" + std::to_string(i))) return 3;
    }
    return *bytes_read() - before < 5000 ? 0 : 4;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

class ForkedDumperTest : public testing::Test {
 protected:
  ForkedDumperTest() { set_log_level(LogLevel::warning); }
  ~ForkedDumperTest() override { set_log_level(LogLevel::info); }

  DumperConfig config(const std::string& exp_name) const {
    DumperConfig config = test::quiet_config(folder_.path());
    config.exp_name = exp_name;
    return config;
  }
  std::size_t records(const std::string& exp_name) const { return test::names_in(folder_ / exp_name).size(); }

  test::TempFolder folder_;
  const at::Tensor x_ = at::arange(3, at::kFloat);
};

TEST_F(ForkedDumperTest, IsOffWithOneWarning) {
  Dumper dumper(config("run"));
  dumper.dump("x", x_);
  bool evaluated = false;
  const ForkedChild child = run_forked([&] {
    for (int i = 0; i < 5; ++i) dumper.dump("x", [&] { return evaluated = true, x_; });
    dumper.step();
    dumper.set_ctx({{"k", 1}});
    if (dumper.is_enabled()) return 2;
    return evaluated ? 3 : 0;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(occurrences(child.output, "\n"), 1u) << child.output;
  EXPECT_THAT(child.output, testing::MatchesRegex("\\[Dumper, rank=0, t=[0-9.]+\\] .*fork.*\n"));
  EXPECT_EQ(records("run"), 1u);
}

TEST_F(ForkedDumperTest, LeavesTheParentsAlone) {
  Dumper dumper(config("run"));
  dumper.dump("x", x_);
  EXPECT_EQ(run_forked([&] { return dumper.dump("x", x_), 0; }).exit_code, 0);
  EXPECT_TRUE(dumper.is_enabled());
  dumper.dump("x", x_);
  EXPECT_EQ(dumper.state().counters.written, 2u);
  EXPECT_EQ(records("run"), 2u);
}

TEST_F(ForkedDumperTest, AnsweredAndChangedItStaysOff) {
  Dumper dumper(config("run"));
  dumper.dump("x", x_);
  const ForkedChild child = run_forked([&] {
    dumper.configure(std::vector<std::string>{"enable=true", "exp_name=other"});
    dumper.reset();
    dumper.set_interceptor([](const Interception&) {});
    const ContextScope scope(dumper, {{"k", 1}});
    const CaptureScope capture = dumper.capture_output();
    dumper.dump("x", x_);
    if (!capture.records().empty()) return 2;
    return dumper.is_enabled() || dumper.state().config.enable ? 3 : 0;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(records("run"), 1u);
  EXPECT_EQ(records("other"), 0u);
}

TEST_F(ForkedDumperTest, AChildsOwnDumperWorks) {
  Dumper dumper(config("run"));
  dumper.dump("x", x_);
  const ForkedChild child = run_forked([&] {
    Dumper own(config("child"));
    own.dump("x", x_);
    return own.state().counters.written == 1 ? 0 : 1;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_EQ(child.output, "");
  EXPECT_EQ(records("child"), 1u);
}

// The threads hold every lock there is at some time: the log's and its handler's, the Dumper's, the participants'.
TEST_F(ForkedDumperTest, NeverWaitsForALockOfTheParents) {
  constexpr int kForks = 150;
  std::mutex handlers_own;
  std::atomic<std::uint64_t> lines{0};
  set_log_handler([&](LogLevel, std::string_view) {
    const std::lock_guard lock(handlers_own);
    lines.fetch_add(1);
  });
  set_log_level(LogLevel::debug);
  DumperConfig loud = config("run");
  loud.enable_output_console = true;
  Dumper dumper(loud);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!done.load()) {
        dumper.dump("x", x_, {{"thread", t}});
        dumper.step();
        const ContextScope scope(dumper, {{"k", t}});
        (void)dumper.state();
        if (t == 0) dumper.configure(std::vector<std::string>{"enable_grad=false"});
        if (t == 1) dumper.reset();
        const ParticipantScope other(std::make_shared<const Participant>(t, 3));
        const CaptureScope capture = dumper.capture_output();
        dumper.dump("captured", x_);
      }
    });
  }
  for (int i = 0; i < kForks; ++i) {
    const ForkedChild child = run_forked([&] {
      dumper.dump("x", x_);
      // Also what a program may do in a child without thinking of dbg.
      dumper.step();
      const ContextScope scope(dumper, {{"k", 1}});
      dumper.reset();
      (void)dumper.state();
      (void)current_participant();
      return dumper.is_enabled() ? 1 : 0;
    });
    EXPECT_FALSE(child.hung) << "fork " << i;
    EXPECT_EQ(child.exit_code, 0) << "fork " << i << ": " << child.output;
    EXPECT_EQ(occurrences(child.output, "is a fork"), 1u) << child.output;
    if (child.hung || HasFailure()) break;
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
  set_log_handler(nullptr);
  EXPECT_TRUE(dumper.is_enabled());
  EXPECT_GT(dumper.state().counters.written, 0u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

// dbg's own locks must be free in a child that starts afresh, too.
TEST_F(ForkedDumperTest, AFreshDumperNeverWaitsEither) {
  if (test::kUnderAddressSanitizer)
    GTEST_SKIP() << "AddressSanitizer leaves its allocator's locks taken in a forked child";
  constexpr int kForks = 100;
  Dumper dumper(config("run"));
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      while (!done.load()) {
        set_log_handler(t == 0 ? LogHandler() : LogHandler([](LogLevel, std::string_view) {}));
        set_default_participant(std::make_shared<const Participant>(0, 1));
        dumper.dump("x", x_);
      }
    });
  }
  for (int i = 0; i < kForks; ++i) {
    const ForkedChild child = run_forked([&] {
      DumperConfig missing = config("child");
      missing.server_port = "12345";  // costs a line in the log
      Dumper own(missing);
      own.dump("x", x_, {{"i", i}});
      return own.state().counters.written == 1 ? 0 : 1;
    });
    EXPECT_FALSE(child.hung) << "fork " << i;
    EXPECT_EQ(child.exit_code, 0) << "fork " << i << ": " << child.output;
    if (HasFailure()) break;
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
  set_log_handler(nullptr);
}

// The log's own lock, taken in the parent nearly all the time.
TEST_F(ForkedDumperTest, TheLogsLockIsFreeInAChild) {
  if (test::kUnderAddressSanitizer)
    GTEST_SKIP() << "AddressSanitizer leaves its allocator's locks taken in a forked child";
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!done.load()) set_log_handler(nullptr);
    });
  }
  for (int i = 0; i < 50; ++i) {
    const ForkedChild child = run_forked(
        [] {
          set_log_handler(nullptr);
          return 0;
        },
        std::chrono::seconds(10));
    EXPECT_FALSE(child.hung) << "fork " << i;
    if (HasFailure()) break;
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace dbg
