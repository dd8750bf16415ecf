// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What cleanup_previous may remove, and what it must leave.
#include "dump/cleanup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>

#include "dbg/error.h"
#include "support/record_files.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr const char* kRecord = "step=0___rank=0___dump_index=1___name=x___recompute_status=disabled.pt";
constexpr const char* kLaterRecord = "step=3___rank=1___dump_index=22___name=y___layer_id=3.pt";
constexpr std::int64_t kClaimed = 1'700'000'000'000'000'123;

class CleanupTest : public testing::Test {
 protected:
  void put(const std::string& path, std::int64_t age_ns = 1) const {
    test::write_text(folder_ / path, "bytes");
    test::set_modified_ns(folder_ / path, kClaimed - age_ns);
  }
  bool is_there(const std::string& path) const {
    return fs::symlink_status(folder_ / path).type() != fs::file_type::not_found;
  }
  CleanupReport clean_up(const std::string& exp_name = "run") const {
    return clean_up_previous(folder_.path().string(), exp_name, kClaimed);
  }

  test::TempFolder folder_;
};

TEST_F(CleanupTest, RemovesEarlierRunsAndTheOneOfThisName) {
  put(std::string("dump_20260304_050607_089042/") + kRecord);
  put(std::string("dump_20260304_050607_089042/") + kLaterRecord);
  put(std::string("dump_x/") + kRecord);
  put(std::string("run/") + kRecord);
  const CleanupReport report = clean_up();
  EXPECT_THAT(report.removed, UnorderedElementsAre("dump_20260304_050607_089042", "dump_x", "run"));
  EXPECT_THAT(report.kept, IsEmpty());
  EXPECT_EQ(report.records_removed, 4u);
  EXPECT_THAT(test::names_in(folder_.path()), IsEmpty());
}

TEST_F(CleanupTest, LeavesFoldersThatAreNoneOfIts) {
  const std::string record = std::string("/") + kRecord;
  for (const char* other : {"results", "run2", "a_dump_x", "Dump_x", "dumps"}) put(other + record);
  put("dump_file.txt");
  const auto before = test::names_in(folder_.path());
  const CleanupReport report = clean_up();
  EXPECT_THAT(report.removed, IsEmpty());
  EXPECT_THAT(report.kept, IsEmpty());
  EXPECT_EQ(test::names_in(folder_.path()), before);
  EXPECT_TRUE(is_there("results" + record));
}

TEST_F(CleanupTest, LeavesAFolderThatHoldsAnythingElse) {
  const std::string record = std::string("/") + kRecord;
  for (const char* foreign :
       {"notes.txt", "model.pt", "step=0___rank=0.pt", ".hidden", "x.tmp", ".dbg-notes.txt", ".dbgtmp-notes.txt"}) {
    put("dump_a" + record);
    put(std::string("dump_a/") + foreign);
    const CleanupReport report = clean_up();
    EXPECT_THAT(report.removed, IsEmpty()) << foreign;
    EXPECT_THAT(report.kept, ElementsAre(AllOf(HasSubstr("dump_a"), HasSubstr(foreign))));
    EXPECT_EQ(report.records_removed, 0u) << foreign;
    EXPECT_TRUE(is_there("dump_a" + record)) << foreign;
    fs::remove_all(folder_ / "dump_a");
  }
}

// A record's name is not enough: it must be a file, and the folder's own.
TEST_F(CleanupTest, LeavesAFolderWhoseEntriesAreNoPlainFiles) {
  const std::string path = (folder_ / "dump_a" / kLaterRecord).string();
  put("elsewhere");
  const auto expect_left = [&](const char* what) {
    const CleanupReport report = clean_up();
    EXPECT_THAT(report.kept, ElementsAre(HasSubstr(kLaterRecord))) << what;
    EXPECT_EQ(report.records_removed, 0u) << what;
    EXPECT_TRUE(is_there(std::string("dump_a/") + kRecord)) << what;
    EXPECT_TRUE(is_there("elsewhere")) << what;
    fs::remove_all(path);
  };
  put(std::string("dump_a/") + kRecord);
  fs::create_directory(path);
  expect_left("a folder");
  fs::create_symlink(folder_ / "elsewhere", path);
  expect_left("a link to a file");
  fs::create_symlink(folder_ / "nowhere", path);
  expect_left("a link to nothing");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_left("a pipe");
}

TEST_F(CleanupTest, FollowsNoLinkOutOfTheFolder) {
  put(std::string("elsewhere/") + kRecord);
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "dump_link");
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "run");
  const CleanupReport report = clean_up();
  EXPECT_THAT(report.removed, IsEmpty());
  EXPECT_TRUE(is_there(std::string("elsewhere/") + kRecord));
  EXPECT_TRUE(is_there("dump_link"));
  EXPECT_TRUE(is_there("run"));
}

TEST_F(CleanupTest, KeepsWhatIsNotOlderThanTheClaim) {
  put(std::string("run/") + kRecord, 1);
  put(std::string("run/") + kLaterRecord, 0);
  put(std::string("dump_new/") + kRecord, -1);
  put(std::string("dump_old/") + kRecord, 1);
  const CleanupReport report = clean_up();
  EXPECT_THAT(report.removed, ElementsAre("dump_old"));
  EXPECT_EQ(report.records_removed, 2u);
  EXPECT_THAT(test::names_in(folder_ / "run"), ElementsAre(kLaterRecord));
  EXPECT_THAT(test::names_in(folder_ / "dump_new"), ElementsAre(kRecord));
}

TEST_F(CleanupTest, LeftoverTemporariesGoWithTheRecords) {
  put(std::string("dump_a/") + kRecord);
  put("dump_a/.dbgtmp-1shbsah-zik0zi-12-0");
  EXPECT_THAT(clean_up().removed, ElementsAre("dump_a"));
  EXPECT_FALSE(is_there("dump_a"));
}

TEST_F(CleanupTest, NothingToCleanIsNoError) {
  EXPECT_THAT(clean_up().kept, IsEmpty());
  EXPECT_THAT(clean_up_previous((folder_ / "missing").string(), "run", kClaimed).kept, IsEmpty());
}

TEST_F(CleanupTest, ABaseThatCantBeListedIsAnError) {
  put("file");
  try {
    clean_up_previous((folder_ / "file").string(), "run", kClaimed);
    FAIL() << "listed a file";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOTDIR);
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "file").string()));
  }
}

TEST_F(CleanupTest, LeftoversOfKilledRunsGoAndNothingElse) {
  put(std::string("dump_a/") + kRecord);
  put("dump_a/notes.txt");
  const std::string dead = test::leave_temporary_of_dead_process(folder_ / "dump_a");
  test::leave_temporary_of_dead_process(folder_ / "dump_b");
  test::leave_temporary_of_dead_process(folder_ / "results");
  fs::create_directory_symlink(folder_ / "results", folder_ / "dump_link");
  const dumping::AtomicFile living((folder_ / "dump_b").string());
  EXPECT_EQ(remove_leftovers(folder_.path().string(), std::chrono::seconds(10)), 2u);
  EXPECT_THAT(test::names_in(folder_ / "dump_a"), UnorderedElementsAre("notes.txt", kRecord));
  EXPECT_THAT(test::names_in(folder_ / "dump_b"), SizeIs(1));
  EXPECT_THAT(test::names_in(folder_ / "results"), ElementsAre(dead));
  EXPECT_EQ(remove_leftovers((folder_ / "missing").string(), std::chrono::seconds(10)), 0u);
}

TEST_F(CleanupTest, TheLookForLeftoversEndsInTime) {
  const std::string dead = test::leave_temporary_of_dead_process(folder_ / "dump_a");
  EXPECT_EQ(remove_leftovers(folder_.path().string(), std::chrono::milliseconds(0)), 0u);
  EXPECT_TRUE(is_there("dump_a/" + dead));
}

}  // namespace
}  // namespace dbg
