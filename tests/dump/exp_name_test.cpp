// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How an experiment gets its name: the proposal's form, the board that all ranks of a launch share, its key.
#include "dump/exp_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/atomic_file.h"
#include "support/rank_threads.h"
#include "support/record_files.h"
#include "support/scoped_env.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using test::ScopedEnv;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::MatchesRegex;

std::chrono::system_clock::time_point at(std::int64_t milliseconds) {
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(milliseconds));
}

TEST(ExpNameTest, ProposalIsTheTimeAndThreeDigits) {
  // 2026-03-04 05:06:07.089 UTC
  const std::string name = propose_exp_name(at(1772600767089), 42);
  EXPECT_EQ(name, "dump_20260304_050607_089042");
  ASSERT_TRUE(name.starts_with("dump_"));
  const std::string suffix = name.substr(5);
  EXPECT_EQ(suffix.size(), 22u);
  EXPECT_EQ(suffix.at(8), '_');
  EXPECT_EQ(suffix.find('_'), 8u);
}

TEST(ExpNameTest, ProposalHasItsFormForAnyTimeAndNumber) {
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{999}, std::int64_t{1000}, std::int64_t{951782400001}}) {
    for (const std::uint32_t random : {0u, 7u, 999u, 1000u, 4294967295u}) {
      EXPECT_THAT(propose_exp_name(at(time), random), MatchesRegex("dump_[0-9]{8}_[0-9]{6}_[0-9]{6}"));
    }
  }
  EXPECT_EQ(propose_exp_name(at(0), 1000), "dump_19700101_000000_000000");
}

TEST(ExpNameTest, ProposalIsUtcWhateverTheZone) {
  const ScopedEnv zone("TZ", "Asia/Tokyo");
  ::tzset();
  EXPECT_EQ(propose_exp_name(at(0), 1), "dump_19700101_000000_000001");
}

class ExpNameBoardTest : public testing::Test {
 protected:
  std::string dir() const { return (folder_ / "base").string(); }
  ExpNameClaim claim(const std::string& key, int rank, const std::string& proposal) const {
    return FileExpNameBoard(dir(), key, rank).claim(proposal);
  }

  test::TempFolder folder_;
};

TEST_F(ExpNameBoardTest, FirstComesFirst) {
  const ExpNameClaim first = claim("launch", 3, "dump_three");
  const ExpNameClaim second = claim("launch", 0, "dump_zero");
  EXPECT_EQ(first.exp_name, "dump_three");
  EXPECT_EQ(second.exp_name, "dump_three");
  EXPECT_EQ(first.claimed_ns, second.claimed_ns);
  EXPECT_GT(first.claimed_ns, 0);
}

TEST_F(ExpNameBoardTest, OneProcessMayAskAgain) {
  EXPECT_EQ(claim("launch", 0, "dump_a").exp_name, "dump_a");
  EXPECT_EQ(claim("launch", 0, "dump_b").exp_name, "dump_a") << "a second Dumper of the same rank";
}

TEST_F(ExpNameBoardTest, LaunchesAreToldByTheirKey) {
  EXPECT_EQ(claim("one", 0, "dump_a").exp_name, "dump_a");
  EXPECT_EQ(claim("two", 0, "dump_b").exp_name, "dump_b");
  EXPECT_EQ(claim("one", 1, "dump_c").exp_name, "dump_a");
}

// The same millisecond and the same digits.
TEST_F(ExpNameBoardTest, OneNameIsOneLaunchs) {
  EXPECT_EQ(claim("one", 0, "dump_a").exp_name, "dump_a");
  EXPECT_EQ(claim("two", 0, "dump_a").exp_name, "dump_a_2");
  EXPECT_EQ(claim("three", 0, "dump_a").exp_name, "dump_a_3");
  EXPECT_EQ(claim("two", 1, "dump_b").exp_name, "dump_a_2");
}

// Every rank of an engine that runs its ranks as threads may have a Dumper of its own.
TEST_F(ExpNameBoardTest, ThreadsThatClaimAtOnceAgree) {
  for (int round = 0; round < 20; ++round) {
    const std::string key = "launch" + std::to_string(round);
    std::vector<std::string> names(8);
    test::run_ranks_as_threads(8, [&](int i) {
      // Each rank twice: two Dumpers of one rank.
      names[static_cast<std::size_t>(i)] = claim(key, i / 2, formatted("dump_{}", i)).exp_name;
    });
    EXPECT_THAT(names, Each(names.front())) << "round " << round;
  }
}

TEST_F(ExpNameBoardTest, NothingUnfinishedStays) {
  claim("launch", 0, "dump_a");
  claim("launch", 1, "dump_b");
  claim("launch", 1, "dump_c");
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir())) {
    EXPECT_FALSE(dumping::is_temporary_name(entry.path().filename().string())) << entry.path();
    files += entry.is_directory() ? 0 : 1;
  }
  EXPECT_EQ(files, 4) << "the claim, its name, and the places of two ranks";
}

// The folder may be shared, and a claim in it is a file like any other.
TEST_F(ExpNameBoardTest, AClaimThatIsNoFoldersNameIsIgnored) {
  int launch = 0;
  for (const char* name : {"../evil", "..", ".", "a/b", "/tmp",
                           "a\x01"
                           "b",
                           ""}) {
    const std::string key = formatted("launch{}", ++launch);
    claim(key, 1, "dump_first");
    std::filesystem::path board;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir())) {
      if (entry.path().filename() == key + ".0") board = entry.path();
      if (entry.path().filename() == key + ".0.rank1") std::filesystem::remove(entry.path());
    }
    ASSERT_FALSE(board.empty());
    const std::string text = test::bytes_of(board);
    test::write_text(board, name + text.substr(text.find('\n')));
    const std::string good = formatted("dump_good{}", launch);
    EXPECT_EQ(claim(key, 0, good).exp_name, good) << "'" << name << "'";
    EXPECT_EQ(claim(key, 2, "dump_late").exp_name, good) << "the others of the launch find the good one";
  }
}

// A FIFO waits for a writer: for ever, and with it the first dump.
TEST_F(ExpNameBoardTest, WhatIsNoPlainFileOfOursIsNoClaim) {
  claim("other", 0, "dump_other");
  const std::filesystem::path board = *std::filesystem::directory_iterator(dir());
  ASSERT_EQ(::mkfifo((board / "fifo.0").c_str(), 0600), 0);
  EXPECT_EQ(claim("fifo", 0, "dump_a").exp_name, "dump_a");
  ASSERT_EQ(::mkfifo((board / "place.0.rank1").c_str(), 0600), 0);
  EXPECT_EQ(claim("place", 0, "dump_first").exp_name, "dump_first");
  EXPECT_EQ(claim("place", 1, "dump_second").exp_name, "dump_second") << "rank 1's place is taken by no rank";

  test::write_text(dir() + "/elsewhere", "dump_evil\n");
  std::filesystem::create_symlink(dir() + "/elsewhere", board / "link.0");
  EXPECT_EQ(claim("link", 0, "dump_b").exp_name, "dump_b");
  const std::string whole = test::bytes_of(board / "other.0");
  test::write_text(board / "huge.0", whole + std::string(1 << 20, ' '));
  EXPECT_EQ(claim("huge", 0, "dump_c").exp_name, "dump_c");
}

TEST_F(ExpNameBoardTest, FoldersAndFilesAreTheOwnersOnly) {
  const mode_t before = ::umask(0);
  claim("launch", 0, "dump_a");
  ::umask(before);
  EXPECT_EQ(test::mode_of(dir()), 0700u);
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir())) {
    EXPECT_EQ(test::mode_of(entry.path()), entry.is_directory() ? 0700u : 0600u) << entry.path();
    files += entry.is_directory() ? 0 : 1;
  }
  EXPECT_GT(files, 0);
}

TEST_F(ExpNameBoardTest, AFolderThatCantBeMadeIsNamedWithWhatToDo) {
  test::write_text(dir(), "a file where the folder should be");
  try {
    claim("launch", 0, "dump_a");
    FAIL() << "claimed on a file";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOTDIR);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(dir()), HasSubstr("Not a directory"), HasSubstr("DUMPER_EXP_NAME")));
  }
}

TEST_F(ExpNameBoardTest, LocalBoardTakesEveryProposal) {
  LocalExpNameBoard board;
  EXPECT_EQ(board.claim("dump_a").exp_name, "dump_a");
  EXPECT_EQ(board.claim("dump_b").exp_name, "dump_b");
}

// A record that is written right after the claim must not look older than it.
TEST_F(ExpNameBoardTest, WhatComesAfterAClaimIsNotOlderThanIt) {
  for (int i = 0; i < 50; ++i) {
    const std::filesystem::path path = folder_ / ("record" + std::to_string(i));
    const std::int64_t local_ns = LocalExpNameBoard().claim("dump_a").claimed_ns;
    test::write_text(path, "x");
    EXPECT_GE(test::modified_ns(path), local_ns);
    const std::int64_t shared_ns = claim("launch" + std::to_string(i), 0, "dump_a").claimed_ns;
    test::write_text(path, "y");
    EXPECT_GE(test::modified_ns(path), shared_ns);
  }
}

// The variables that a launch key is made of, all unset at first.
class LaunchKeyTest : public testing::Test {
 protected:
  ScopedEnv run_id_{"TORCHELASTIC_RUN_ID", std::nullopt};
  ScopedEnv restart_{"TORCHELASTIC_RESTART_COUNT", std::nullopt};
  ScopedEnv address_{"MASTER_ADDR", std::nullopt};
  ScopedEnv port_{"MASTER_PORT", std::nullopt};
  ScopedEnv world_size_{"WORLD_SIZE", std::nullopt};
  ScopedEnv local_world_size_{"LOCAL_WORLD_SIZE", std::nullopt};
  ScopedEnv group_world_size_{"GROUP_WORLD_SIZE", std::nullopt};
  ScopedEnv slurm_{"SLURM_NNODES", std::nullopt};
};

TEST_F(LaunchKeyTest, IsTheSameForAllWhoAsk) {
  EXPECT_EQ(launch_key(), launch_key());
  const ScopedEnv run_id("TORCHELASTIC_RUN_ID", "job");
  EXPECT_EQ(launch_key(), launch_key());
}

TEST_F(LaunchKeyTest, EverythingThatTellsLaunchesApartCounts) {
  std::set<std::string> keys = {launch_key()};
  std::size_t launches = 1;
  const std::string longer(300, 'x');
  for (const std::string& run_id :
       {std::string(), std::string("job"), std::string("job-1"), std::string("job_1"), longer}) {
    for (const char* restart : {"", "0", "1"}) {
      for (const char* address : {"", "127.0.0.1", "node-a", "node_a"}) {
        for (const char* port : {"29500", "29501"}) {
          if (run_id.empty() && *address == '\0') continue;
          const ScopedEnv a("TORCHELASTIC_RUN_ID", run_id);
          const ScopedEnv b("TORCHELASTIC_RESTART_COUNT", restart);
          const ScopedEnv c("MASTER_ADDR", address);
          const ScopedEnv d("MASTER_PORT", port);
          keys.insert(launch_key());
          ++launches;
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), launches);
}

TEST_F(LaunchKeyTest, IsAFileNameWhateverTheEnvironmentSays) {
  for (const std::string& run_id : {std::string("../../etc"), std::string("a b\n\t"), std::string("\xE6\xBC\xA2"),
                                    std::string(5000, '/'), std::string(".")}) {
    const ScopedEnv scoped("TORCHELASTIC_RUN_ID", run_id);
    EXPECT_THAT(launch_key(), MatchesRegex("[A-Za-z0-9_]{1,160}"));
  }
}

// What differs from node to node must not tell the ranks of one launch apart.
TEST_F(LaunchKeyTest, OfAllNodesIsWhatTheyShare) {
  const ScopedEnv address("MASTER_ADDR", "node-a");
  const ScopedEnv port("MASTER_PORT", "29500");
  EXPECT_EQ(launch_key_of_all_nodes(), "");
  std::set<std::string> keys;
  for (const char* run_id : {"job", "job-1", "../x"}) {
    for (const char* restart : {"0", "1"}) {
      const ScopedEnv a("TORCHELASTIC_RUN_ID", run_id);
      const ScopedEnv b("TORCHELASTIC_RESTART_COUNT", restart);
      const std::string key = launch_key_of_all_nodes();
      EXPECT_THAT(key, MatchesRegex("[A-Za-z0-9_]{1,160}"));
      keys.insert(key);
      const ScopedEnv spelled_otherwise("MASTER_ADDR", "10.0.0.1");
      EXPECT_EQ(launch_key_of_all_nodes(), key);
    }
  }
  EXPECT_EQ(keys.size(), 6u);
}

TEST_F(LaunchKeyTest, NodesAreCountedFromWhatLaunchersSet) {
  EXPECT_FALSE(launch_spans_nodes());
  struct Case {
    const char* world_size;
    const char* local_world_size;
    const char* group_world_size;
    const char* slurm;
    bool spans;
  };
  for (const Case& c : {Case{"8", "8", "1", "", false}, Case{"8", "4", "", "", true}, Case{"8", "", "2", "", true},
                        Case{"8", "", "", "", false}, Case{"8", "", "", "2", true}, Case{"8", "", "", "1", false},
                        Case{"words", "4", "x", "y", false}}) {
    const ScopedEnv a("WORLD_SIZE", c.world_size);
    const ScopedEnv b("LOCAL_WORLD_SIZE", c.local_world_size);
    const ScopedEnv d("GROUP_WORLD_SIZE", c.group_world_size);
    const ScopedEnv e("SLURM_NNODES", c.slurm);
    EXPECT_EQ(launch_spans_nodes(), c.spans) << c.world_size << " " << c.local_world_size << " " << c.group_world_size;
  }
}

}  // namespace
}  // namespace dbg
