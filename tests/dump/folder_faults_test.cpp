// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Folders that are forbidden or vanish: the run's results stay bit for bit, every record is accounted for, and dumping
// goes on. Takes no mount and no namespace, so that nothing keeps it from running.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <thread>

#include "dump/disk_faults.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using test::kSteps;
using test::run_model;
using testing::SizeIs;

constexpr uid_t kNobody = 65534;

class FolderFaultsTest : public test::DiskFaultsFixture {};

TEST_F(FolderFaultsTest, AForbiddenFolderCostsRecordsAndNotTheRun) {
  fs::create_directories(folder_ / "disk");
  ASSERT_EQ(::chmod((folder_ / "disk").c_str(), 0500), 0);
  Dumper dumper(config());
  at::Tensor result;
  bool is_forbidden = true;
  // Root may write anywhere; a thread whose files are another user's may not. That takes a user who exists here.
  std::thread([&] {
    if (::geteuid() == 0) {
      ::setfsuid(kNobody);
      is_forbidden = ::setfsuid(static_cast<uid_t>(-1)) == static_cast<int>(kNobody);
    }
    result = run_model(&dumper, [](int) {});
  }).join();
  if (!is_forbidden) GTEST_SKIP() << "no user here for whom the folder would be forbidden";
  EXPECT_TRUE(at::equal(result, run_model()));
  EXPECT_EQ(dumper.state().counters.failed, std::uint64_t{3 * kSteps});
  EXPECT_GE(log_.count("Permission denied (EACCES)"), 1u);
  ASSERT_EQ(::chmod((folder_ / "disk").c_str(), 0700), 0);
  dumper.dump("after", at::zeros({1}));
  EXPECT_THAT(test::names_in(run()), SizeIs(1));
}

TEST_F(FolderFaultsTest, AFolderThatVanishesInTheMiddleComesBack) {
  Dumper dumper(config());
  std::uint64_t gone = 0;
  const at::Tensor result = run_model(&dumper, [&](int step) {
    if (step != 2) return;
    gone = dumper.state().counters.written;
    fs::remove_all(run());
  });
  EXPECT_TRUE(at::equal(result, run_model()));
  EXPECT_EQ(gone, 6u);
  expect_all_explained(dumper, gone);
  EXPECT_GT(list_records(run().string()).size(), 0u);
}

}  // namespace
}  // namespace dbg
