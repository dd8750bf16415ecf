// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// When progress is shown, on made-up clocks, and how it looks on a terminal.
#include "cli/progress.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <regex>
#include <thread>

#include "cli/output.h"
#include "cli/program.h"
#include "compare/run_folder.h"
#include "support/scoped_env.h"

namespace dbg::cli {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// By whoever calls, and never by itself.
constexpr ProgressPace kAtOnce{milliseconds(0), milliseconds(0), std::chrono::hours(1)};

TEST(ProgressTest, IsSilentForASecondAndThenNotTooOften) {
  const Progress::Clock::time_point start{};
  Progress progress(start);
  EXPECT_FALSE(progress.line(10, 100, start + milliseconds(999)));
  EXPECT_EQ(progress.line(20, 100, start + milliseconds(1000)), "20 of 100 pairs, 4 s left");
  EXPECT_FALSE(progress.line(21, 100, start + milliseconds(1100)));
  EXPECT_EQ(progress.line(50, 100, start + milliseconds(2000)), "50 of 100 pairs, 2 s left");
}

TEST(ProgressTest, BeforeTheFirstPairItSaysForHowLong) {
  const Progress::Clock::time_point start{};
  Progress progress(start);
  EXPECT_FALSE(progress.line(0, 2, start + milliseconds(999)));
  EXPECT_EQ(progress.line(0, 2, start + milliseconds(3000)), "0 of 2 pairs, 3 s so far");
}

// One pair may take minutes.
TEST(ProgressLineTest, GoesOnWhileNothingIsDone) {
  test::Terminal terminal;
  {
    ProgressLine line(terminal.programs_end(), {milliseconds(0), milliseconds(1), milliseconds(1)});
    line.show(0, 1);
    std::this_thread::sleep_for(milliseconds(200));  // what comes meanwhile comes by itself
    line.show(1, 1);
    std::this_thread::sleep_for(milliseconds(20));  // and nothing after the end
  }
  EXPECT_THAT(terminal.end(), MatchesRegex("(\r\x1b\\[K0 of 1 pairs, [0-9]+ s so far){2,}\r\x1b\\[K"));
}

TEST(ProgressLineTest, IsRewrittenInPlaceAndTakenAwayAtTheEnd) {
  test::Terminal terminal;
  ProgressLine line(terminal.programs_end(), kAtOnce);
  line.show(1, 30);
  line.show(12, 30);
  line.show(30, 30);
  EXPECT_THAT(terminal.end(), MatchesRegex("\r\x1b\\[K1 of 30 pairs, [0-9]+ s left"
                                           "\r\x1b\\[K12 of 30 pairs, [0-9]+ s left\r\x1b\\[K"));
}

TEST(ProgressLineTest, IsTakenAwayWhenTheWorkEndsEarly) {
  test::Terminal terminal;
  std::optional<ProgressLine> line(std::in_place, terminal.programs_end(), kAtOnce);
  line->show(12, 30);
  line.reset();
  EXPECT_THAT(terminal.end(), MatchesRegex("\r\x1b\\[K12 of 30 pairs, [0-9]+ s left\r\x1b\\[K"));
}

TEST(ProgressLineTest, WritesNothingWhereNoLineWasDue) {
  test::Terminal terminal;
  {
    ProgressLine line(terminal.programs_end());
    line.show(12, 30);
    line.show(30, 30);
  }
  EXPECT_EQ(terminal.end(), "");
}

TEST(IsTerminalTest, ADumbOneAndAPipeAreNone) {
  test::Terminal terminal;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  {
    const test::ScopedEnv kind("TERM", "xterm");
    EXPECT_TRUE(is_terminal(terminal.programs_end()));
    EXPECT_FALSE(is_terminal(pipe[1]));
  }
  {
    const test::ScopedEnv kind("TERM", "dumb");
    EXPECT_FALSE(is_terminal(terminal.programs_end()));
  }
  const test::ScopedEnv kind("TERM", std::nullopt);
  EXPECT_FALSE(is_terminal(terminal.programs_end()));
  for (const int end : pipe) ::close(end);
}

// A run whose records are all the same file: quick to write, and long to compare.
class RepeatedRun {
 public:
  explicit RepeatedRun(const at::Tensor& value) : first_(folder_.add("x", value, {.tags = {{"layer_id", 0}}})) {}

  std::string path() const { return folder_.path(); }

  void grow_to(int records) {
    for (; records_ < records; ++records_) {
      const std::string number = std::to_string(records_);
      std::filesystem::create_hard_link(first_, path() +
                                                    "/step=0___rank=0___dump_index=" + std::to_string(records_ + 1) +
                                                    "___name=x___layer_id=" + number + ".pt");
    }
  }

 private:
  test::RunFolder folder_;
  std::string first_;
  int records_ = 1;
};

double seconds_told(const std::string& report) {
  std::smatch found;
  return std::regex_search(report, found, std::regex("\\(([0-9.]+) s\\)")) ? std::stod(found[1]) : -1;
}

TEST(ProgressLineTest, ALongComparisonShowsItOnATerminalAndNowhereElse) {
  RepeatedRun baseline(at::arange(1 << 18, at::kFloat));
  RepeatedRun target(at::arange(1 << 18, at::kFloat) * 2);
  const std::vector<std::string> arguments = {"compare", baseline.path(), target.path(), "--threads", "1"};
  test::ProgramResult shown;
  // However fast the machine: more pairs until it takes long enough for two lines.
  constexpr double kLongEnough = 1.4;
  constexpr int kMost = 1 << 14;
  for (int pairs = 96; pairs <= kMost && seconds_told(shown.out) < kLongEnough;) {
    baseline.grow_to(pairs);
    target.grow_to(pairs);
    shown = test::run_program_on_terminal(arguments, "TERM=xterm NO_COLOR=1");
    ASSERT_EQ(shown.status, 1) << shown.out;
    pairs = 1 + static_cast<int>(pairs * 1.3 * kLongEnough / std::max(seconds_told(shown.out), 0.1));
  }
  ASSERT_GE(seconds_told(shown.out), kLongEnough) << "no comparison took long enough for two progress lines";
  // The lines, each over the one before, then the emptied line; then the report, without a word of it.
  const std::string empty_line = "\r\x1b[K";
  const std::size_t report = shown.out.find("baseline: ");
  ASSERT_NE(report, std::string::npos) << shown.out;
  const std::string drawn = shown.out.substr(0, report);
  ASSERT_THAT(drawn, MatchesRegex("(\r\x1b\\[K[0-9]+ of [0-9]+ pairs, [0-9]+ s (left|so far))+\r\x1b\\[K"));
  EXPECT_THAT(drawn, Not(HasSubstr("\n")));
  int last_done = 0;
  int lines = 0;
  for (std::size_t at = 0; (at = drawn.find(empty_line, at)) + empty_line.size() < drawn.size(); ++lines) {
    at += empty_line.size();
    const int done = std::stoi(drawn.substr(at));
    EXPECT_GE(done, last_done) << drawn;
    last_done = done;
  }
  EXPECT_GE(lines, 2) << drawn;
  EXPECT_THAT(shown.out.substr(report), Not(HasSubstr(" s left")));
  const test::ProgramResult silent = test::run_program(arguments, "TERM=xterm");
  EXPECT_EQ(silent.err, "");
  EXPECT_THAT(silent.out, StartsWith("baseline: "));
}

}  // namespace
}  // namespace dbg::cli
