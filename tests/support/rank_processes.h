// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: the test binary started again, once a rank, with a body to run instead of its tests.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dbg::test {

/// What a rank process is told.
struct RankContext {
  int rank = 0;
  int world_size = 1;
  std::string argument = {};
};

using RankBody = void (*)(const RankContext&);

/// Makes `body` known under `name`. Use DBG_RANK_BODY.
bool register_rank_body(std::string_view name, RankBody body);

/// Defines what a rank process does: `DBG_RANK_BODY(dump_twice) { ... context.rank ... }`. It fails by throwing, by a
/// failed assertion of gtest, or by dying. Its executable is added with NO_MAIN and linked with dbg_test_support, whose
/// main() runs the body in rank processes and the tests otherwise.
#define DBG_RANK_BODY(name)                                                                                \
  static void name(const ::dbg::test::RankContext& context);                                               \
  [[maybe_unused]] static const bool name##_is_registered = ::dbg::test::register_rank_body(#name, &name); \
  static void name([[maybe_unused]] const ::dbg::test::RankContext& context)

/// Which ranks to start.
struct RankSpawn {
  std::string body;  ///< a name given to DBG_RANK_BODY
  int world_size = 1;
  std::string argument = {};
  /// Added to this process's own, which also gets RANK, WORLD_SIZE and LOCAL_RANK; nullopt removes one.
  std::map<std::string, std::optional<std::string>> environment = {};
  /// For all ranks, from the start; whoever is not done then has its stacks printed and is killed.
  std::chrono::milliseconds limit = std::chrono::seconds(60);
};

/// How a rank process ended.
struct RankResult {
  int rank = 0;
  std::optional<int> exit_code;  ///< if it exited
  std::optional<int> signal;     ///< if it was killed
  bool timed_out = false;        ///< killed here, past the limit
  std::string output;            ///< all of its stdout and stderr

  bool passed() const noexcept { return exit_code == 0; }
};

/// Running rank processes. What still runs when this goes is killed.
/// Threads: one thread at a time.
class RankProcesses {
 public:
  /// Starts the ranks. Throws: std::system_error when one can't be started.
  explicit RankProcesses(const RankSpawn& spawn);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Waits until the rank has printed `text`; this is how a test knows where a rank is.
  /// Throws: dbg::Error when the rank ends without it or the limit passes.
  void wait_for_output(int rank, std::string_view text);

  // Signals to one rank; nothing happens when it has ended.
  void kill(int rank);
  void stop(int rank);
  void resume(int rank);

  /// Replaces the limit: `limit` from now on.
  void set_limit(std::chrono::milliseconds limit);

  /// Waits for all ranks, until the limit. Each rank's output goes to stderr when one of them did not pass.
  const std::vector<RankResult>& wait();

 private:
  struct Process;
  void send_signal(int rank, int number);
  void report_and_kill_those_running();

  std::vector<std::unique_ptr<Process>> processes_;
  std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point deadline_;
  std::vector<RankResult> results_;
};

/// Starts the ranks and waits for them.
std::vector<RankResult> spawn_ranks(const RankSpawn& spawn);

/// Adds a failure to the current test for each rank that did not exit with 0.
void expect_all_passed(const std::vector<RankResult>& results);

/// In a rank process, runs its body and returns the exit code; else nullopt. For main().
std::optional<int> run_rank_if_asked();

}  // namespace dbg::test
