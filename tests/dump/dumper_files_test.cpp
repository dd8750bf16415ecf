// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where a Dumper's records go: folder and name, modes, ranks as threads, faults of the file system, clean-up.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/error.h"
#include "dbg/participant.h"
#include "support/log_capture.h"
#include "support/rank_threads.h"
#include "support/record_files.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"
#include "support/torch_archive.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

std::uint64_t explained(const DumperCounters& counters) {
  return counters.written + counters.filtered + counters.skipped + counters.dropped + counters.failed;
}

class DumperFilesTest : public testing::Test {
 protected:
  fs::path dir() const { return folder_ / "base"; }
  DumperConfig config(const std::vector<std::string>& overrides = {}) const {
    return test::quiet_config(dir()).with_overrides(overrides);
  }
  fs::path run() const { return dir() / "run"; }

  test::TempFolder folder_;
  test::LogCapture log_;
  const at::Tensor x_ = at::arange(6, at::kFloat);
};

TEST_F(DumperFilesTest, WithoutANameTheFolderIsCalledAfterTheTime) {
  Dumper dumper(config());
  EXPECT_EQ(dumper.state().exp_name, "");
  dumper.dump("x", x_);
  const std::string name = dumper.state().exp_name;
  EXPECT_THAT(name, MatchesRegex("dump_[0-9]{8}_[0-9]{6}_[0-9]{6}"));
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre(name));
  EXPECT_THAT(list_records((dir() / name).string()), SizeIs(1));
  EXPECT_EQ(log_.count(name), 1u) << "said once where records go";
}

TEST_F(DumperFilesTest, TheNameStaysOverStepsResetAndConfigure) {
  Dumper dumper(config());
  dumper.dump("x", x_);
  const std::string name = dumper.state().exp_name;
  dumper.step();
  dumper.dump("x", x_);
  dumper.reset();
  dumper.configure(std::vector<std::string>{"enable_value=true"});
  dumper.dump("x", x_);
  EXPECT_EQ(dumper.state().exp_name, name);
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre(name));
}

TEST_F(DumperFilesTest, ANameThatIsNoPathComponentIsRefused) {
  for (const char* name : {"a/b", "/abs", "../up", "..", "."}) {
    const std::string pair = std::string("exp_name=") + name;
    EXPECT_THROW(Dumper(config({pair})), ConfigError) << name;
    Dumper dumper(config({"exp_name=run"}));
    EXPECT_THROW(dumper.configure(std::vector<std::string>{pair}), ConfigError) << name;
    EXPECT_EQ(dumper.state().config.exp_name, "run") << name;
  }
  EXPECT_FALSE(fs::exists(dir()));
}

TEST_F(DumperFilesTest, FoldersAndFilesAreTheOwnersOnly) {
  const mode_t before = ::umask(0);
  Dumper(config({"exp_name=run"})).dump("x", x_);
  test::run_ranks_as_threads(2, [&](int) { Dumper(config()).dump("x", x_); });
  ::umask(before);
  EXPECT_EQ(test::mode_of(dir()), 0700u);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir())) {
    EXPECT_EQ(test::mode_of(entry.path()), entry.is_directory() ? 0700u : 0600u) << entry.path();
    files += entry.path().extension() == ".pt" ? 1 : 0;
  }
  EXPECT_EQ(files, 3);
}

// The board comes first: it must not make the base folder another way than the records would.
TEST_F(DumperFilesTest, FoldersMadeForTheNameAreTheOwnersOnly) {
  const mode_t before = ::umask(0);
  test::run_ranks_as_threads(2, [&](int) { Dumper(config()).dump("x", x_); });
  ::umask(before);
  EXPECT_EQ(test::mode_of(dir()), 0700u);
}

TEST_F(DumperFilesTest, NoNameLeavesTheFolder) {
  Dumper dumper(config({"exp_name=run"}));
  const std::vector<std::string> names = {"../../escape",         "/etc/passwd", ".hidden", "a\nb",
                                          std::string("n\0l", 3), "a___step=7",  ""};
  for (const std::string& name : names) dumper.dump(name, x_, {{"k/=", "../v"}});
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre("run"));
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("base"));
  EXPECT_EQ(test::tags_in(run(), "name"), names);
  EXPECT_THAT(test::tags_in(run(), "step"), testing::Each("0"));
  EXPECT_THAT(test::tags_in(run(), "k/="), testing::Each("../v"));
}

TEST_F(DumperFilesTest, ASecondPhaseOverwritesNothing) {
  Dumper dumper(config({"exp_name=run"}));
  for (int i = 0; i < 3; ++i) dumper.dump("x", x_ + i);
  std::map<std::string, std::string> first;
  for (const std::string& path : list_records(run().string())) first[path] = test::bytes_of(path);
  dumper.reset();
  for (int i = 0; i < 3; ++i) dumper.dump("x", x_ + 10 + i);
  Dumper(config({"exp_name=run"})).dump("x", x_ + 20);
  for (const auto& [path, bytes] : first) EXPECT_EQ(test::bytes_of(path), bytes) << path;
  EXPECT_THAT(test::tags_in(run(), "dump_index"), ElementsAre("1", "2", "3", "4", "5", "6", "7"));
  EXPECT_EQ(dumper.state().counters.written, 6u);
}

TEST_F(DumperFilesTest, RanksAsThreadsShareOneFolder) {
  Dumper dumper(config());
  test::run_ranks_as_threads(2, [&](int rank) {
    for (int step = 0; step < 2; ++step) {
      dumper.dump("x", x_ + 10 * rank + step, {{"layer_id", step}});
      dumper.step();
    }
  });
  ASSERT_THAT(test::experiments_in(dir()), SizeIs(1));
  const fs::path folder = dir() / test::experiments_in(dir()).front();
  EXPECT_THAT(test::tags_in(folder, "step"), ElementsAre("0", "0", "1", "1"));
  EXPECT_THAT(test::tags_in(folder, "rank"), ElementsAre("0", "1", "0", "1"));
  EXPECT_THAT(test::tags_in(folder, "dump_index"), ElementsAre("1", "1", "2", "2"));
  EXPECT_THAT(test::tags_in(folder, "layer_id"), ElementsAre("0", "0", "1", "1"));
  for (const std::string& path : list_records(folder.string())) {
    const at::Tensor value = x_ + 10 * std::stoi(test::tag_of(path, "rank")) + std::stoi(test::tag_of(path, "step"));
    EXPECT_EQ(test::first_tensor_bytes(path), test::tensor_bytes(value)) << path;
    test::expect_meta_of_rank(path, 2);
  }
}

TEST_F(DumperFilesTest, RanksAsThreadsWithADumperEachShareOneFolderToo) {
  for (int round = 0; round < 10; ++round) {
    const fs::path base = folder_ / std::to_string(round);
    test::run_ranks_as_threads(4, [&](int) { Dumper(test::quiet_config(base)).dump("x", x_); });
    const auto experiments = test::experiments_in(base);
    ASSERT_THAT(experiments, SizeIs(1)) << round;
    EXPECT_THAT(test::tags_in(base / experiments.front(), "rank"), ElementsAre("0", "1", "2", "3"));
  }
  EXPECT_EQ(log_.count("goes on with its own exp_name"), 0u);
}

TEST_F(DumperFilesTest, ManyThreadsOfManyRanksLoseNothing) {
  constexpr int kRanks = 3, kThreads = 2, kDumps = 60;
  Dumper dumper(config({"exp_name=run"}));
  test::run_ranks_as_threads(kRanks, [&](int) {
    const auto participant = current_participant();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&dumper, participant, t, this] {
        const ParticipantScope bound(participant);
        for (int i = 0; i < kDumps; ++i) dumper.dump("x", x_, {{"thread", t}, {"i", i}});
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(dumper.state().counters.written, std::uint64_t{kRanks * kThreads * kDumps});
  std::set<std::string> indices;
  const auto ranks = test::tags_in(run(), "rank");
  const auto numbers = test::tags_in(run(), "dump_index");
  ASSERT_EQ(ranks.size(), std::size_t{kRanks * kThreads * kDumps});
  for (std::size_t i = 0; i < ranks.size(); ++i) indices.insert(ranks[i] + "/" + numbers[i]);
  EXPECT_EQ(indices.size(), ranks.size()) << "a dump_index was given twice to one rank";
}

TEST_F(DumperFilesTest, AFolderDeletedInTheMiddleComesBack) {
  Dumper dumper(config({"exp_name=run"}));
  dumper.dump("x", x_);
  fs::remove_all(dir());
  dumper.dump("x", x_);
  dumper.dump("x", x_);
  EXPECT_THAT(test::tags_in(run(), "dump_index"), ElementsAre("2", "3"));
  EXPECT_EQ(dumper.state().counters.written, 3u);
}

TEST_F(DumperFilesTest, AFolderDeletedAgainAndAgainWhileThreadsDumpLosesOnlyWhatTheCountersSay) {
  Dumper dumper(config({"exp_name=run"}));
  constexpr int kDumps = 200;
  std::atomic<bool> done{false};
  std::thread remover([&] {
    std::error_code ignored;
    while (!done.load()) fs::remove_all(run(), ignored);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kDumps; ++i) dumper.dump("x", x_);
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  remover.join();
  const DumperCounters counters = dumper.state().counters;
  EXPECT_EQ(counters.written + counters.failed, std::uint64_t{2 * kDumps});
  dumper.dump("after", x_);
  EXPECT_THAT(test::tags_in(run(), "name"), Contains("after"));
}

TEST_F(DumperFilesTest, AStartTakesAwayWhatKilledRunsLeft) {
  test::leave_temporary_of_dead_process(dir() / "dump_20200101_000000_000000");
  test::leave_temporary_of_dead_process(run());
  Dumper(config({"exp_name=run"})).dump("x", x_);
  EXPECT_THAT(test::names_in(run()), SizeIs(1));
  Dumper(config()).dump("x", x_);
  EXPECT_THAT(test::names_in(dir() / "dump_20200101_000000_000000"), IsEmpty());
}

TEST_F(DumperFilesTest, ABaseThatCantBeAFolderCostsRecordsAndNotTheRun) {
  test::write_text(dir(), "a file");
  Dumper dumper(config({"exp_name=run"}));
  const at::Tensor before = x_.clone();
  for (int i = 0; i < 10; ++i) dumper.dump("x", x_);
  EXPECT_TRUE(at::equal(x_, before));
  EXPECT_EQ(dumper.state().counters.failed, 10u);
  EXPECT_EQ(explained(dumper.state().counters), 10u);
  EXPECT_EQ(log_.count("Not a directory (ENOTDIR)"), 4u) << "faults 1, 2, 4 and 8";
  fs::remove(dir());
  dumper.dump("x", x_);
  EXPECT_EQ(dumper.state().counters.written, 1u) << "dumping goes on once the cause is gone";
}

TEST_F(DumperFilesTest, ABoardThatCantBeMadeCostsAWarningAndNotTheRun) {
  fs::create_directories(dir());
  // In the way of whatever hidden folder the board uses.
  Dumper first(config());
  test::run_ranks_as_threads(2, [&](int) { first.dump("x", x_); });
  for (const std::string& name : test::names_in(dir())) {
    fs::remove_all(dir() / name);
    if (name.starts_with('.')) test::write_text(dir() / name, "in the way");
  }
  Dumper dumper(config());
  test::run_ranks_as_threads(2, [&](int) { dumper.dump("x", x_); });
  EXPECT_EQ(log_.count("goes on with its own exp_name"), 1u);
  EXPECT_EQ(dumper.state().counters.written, 2u);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

TEST_F(DumperFilesTest, StrictThrowsTheCauseOfALostRecord) {
  test::write_text(dir(), "a file");
  Dumper dumper(config({"exp_name=run", "strict=true"}));
  try {
    dumper.dump("x", x_);
    FAIL() << "a strict dump came through";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ENOTDIR"));
  }
  EXPECT_EQ(dumper.state().counters.failed, 1u);
}

// A client's handler may look at the Dumper, or dump itself: no lock of the Dumper's is held while it runs.
TEST_F(DumperFilesTest, TheLogHandlerMayUseTheDumper) {
  fs::create_directories(dir() / "dump_old");
  test::write_text(dir() / "dump_old/notes.txt", "so that the clean-up has something to say");
  Dumper dumper(config({"cleanup_previous=true"}));
  int lines = 0;
  set_log_handler([&](LogLevel, std::string_view) {
    ++lines;
    (void)dumper.state();
    dumper.dump("from the handler", x_);
  });
  dumper.dump("x", x_);
  set_log_handler(nullptr);
  EXPECT_GE(lines, 1);
  EXPECT_EQ(dumper.state().counters.failed, 0u);
}

// Another thread may change the configuration, and write its first record, between a record and its line; here the log
// handler does.
TEST_F(DumperFilesTest, TheConsoleNamesTheFileThatWasWritten) {
  Dumper dumper(config({"enable_output_console=true"}));
  std::vector<std::string> paths;
  set_log_handler([&](LogLevel, std::string_view line) {
    if (line.find("records go to") != std::string_view::npos) {
      dumper.configure({"exp_name=other"});
      dumper.dump("meanwhile", x_);
    }
    const std::size_t begin = line.find("[Dumper.Value] ");
    if (begin == std::string_view::npos) return;
    const std::string_view path = line.substr(begin + 15);
    paths.emplace_back(path.substr(0, path.find(" type=")));
  });
  dumper.dump("x", x_);
  dumper.dump("y", x_);
  set_log_handler(nullptr);
  ASSERT_EQ(paths.size(), 2u);
  for (const std::string& path : paths) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_THAT(test::tags_in(dir() / "other", "name"), testing::UnorderedElementsAre("meanwhile", "y"));
}

class DumperCleanupTest : public DumperFilesTest {
 protected:
  static constexpr const char* kRecord = "step=0___rank=0___dump_index=1___name=x.pt";

  // A folder of records from an hour ago.
  void put_old(const std::string& folder) const {
    const fs::path path = dir() / folder / kRecord;
    test::write_text(path, "old");
    test::set_modified_ns(path, test::modified_ns(path) - std::int64_t{3600} * 1000000000);
  }
};

TEST_F(DumperCleanupTest, IsOffByDefault) {
  put_old("dump_old");
  put_old("run");
  Dumper(config({"exp_name=run"})).dump("y", x_);
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre("dump_old", "run"));
  EXPECT_THAT(test::names_in(run()), SizeIs(2));
}

TEST_F(DumperCleanupTest, RemovesEarlierRunsBeforeTheFirstWriteAndOnce) {
  put_old("dump_old");
  put_old("run");
  put_old("results");
  Dumper dumper(config({"exp_name=run", "cleanup_previous=true"}));
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre("dump_old", "results", "run")) << "not before the first write";
  dumper.dump("x", x_);
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre("results", "run"));
  EXPECT_THAT(test::tags_in(run(), "name"), ElementsAre("x"));
  EXPECT_EQ(log_.count("cleanup_previous removed 2 records"), 1u);
  put_old("dump_old");
  dumper.dump("x", x_);
  dumper.step();
  dumper.dump("x", x_);
  EXPECT_THAT(test::experiments_in(dir()), Contains("dump_old")) << "once means once";
  EXPECT_THAT(test::names_in(run()), SizeIs(3));
}

TEST_F(DumperCleanupTest, AfterAResetItMayRunAgainButSparesThisRun) {
  Dumper dumper(config({"exp_name=run", "cleanup_previous=true"}));
  dumper.dump("x", x_);
  put_old("dump_old");
  dumper.reset();
  dumper.dump("x", x_);
  EXPECT_THAT(test::experiments_in(dir()), ElementsAre("run"));
  EXPECT_THAT(test::names_in(run()), SizeIs(2));
}

TEST_F(DumperCleanupTest, TurnedOnInTheMiddleItSparesThisRun) {
  for (const char* named : {"exp_name=run", "exp_name="}) {
    Dumper dumper(config({named}));
    dumper.dump("x", x_);
    dumper.dump("x", x_);
    const std::string name = dumper.state().exp_name;
    // The clocks that stamp files tick in milliseconds; what follows must not fall into the same tick.
    const std::int64_t stamp = test::modified_ns(list_records((dir() / name).string()).back());
    do {
      test::write_text(folder_ / "clock", "tick");
    } while (test::modified_ns(folder_ / "clock") <= stamp);
    put_old("dump_old");
    dumper.configure(std::vector<std::string>{"cleanup_previous=true"});
    dumper.dump("x", x_);
    EXPECT_THAT(test::names_in(dir() / name), SizeIs(3)) << named;
    EXPECT_FALSE(fs::exists(dir() / "dump_old")) << named;
  }
}

TEST_F(DumperCleanupTest, OnlyRankZeroCleansAndItSparesWhatPeersWrote) {
  put_old("dump_old");
  put_old("run");
  Dumper dumper(config({"exp_name=run", "cleanup_previous=true"}));
  const auto dump_as = [&](int rank) {
    const ParticipantScope bound(std::make_shared<const Participant>(rank, 2));
    dumper.dump("x", x_);
  };
  dump_as(1);
  EXPECT_TRUE(fs::exists(dir() / "dump_old"));
  EXPECT_THAT(test::tags_in(run(), "rank"), ElementsAre("0", "1")) << "the old one and rank 1's";
  dump_as(0);
  EXPECT_FALSE(fs::exists(dir() / "dump_old"));
  EXPECT_THAT(test::names_in(run()), SizeIs(2));
  EXPECT_THAT(test::tags_in(run(), "rank"), ElementsAre("0", "1")) << "one each, of this run";
}

TEST_F(DumperCleanupTest, AFolderWithOtherThingsIsLeftWithAWarning) {
  put_old("dump_old");
  test::write_text(dir() / "dump_old/notes.txt", "mine");
  Dumper(config({"exp_name=run", "cleanup_previous=true"})).dump("x", x_);
  EXPECT_THAT(test::names_in(dir() / "dump_old"), ElementsAre("notes.txt", kRecord));
  EXPECT_EQ(log_.count("notes.txt"), 1u);
}

}  // namespace
}  // namespace dbg
