// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Disks that are full or read-only: the run's results stay bit for bit, every record is accounted for, and dumping goes
// on when the cause is gone. Mounts file systems of its own, in a mount namespace of its own; where that is not allowed
// it is skipped (77). What takes no mount is tested in folder_faults_test.cpp.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "dump/disk_faults.h"
#include "support/record_files.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using test::kSteps;
using test::run_model;

constexpr std::size_t kDiskBytes = std::size_t{1} << 20;

// A small disk for the length of a scope.
class Disk {
 public:
  explicit Disk(const fs::path& where) : where_(where) {
    fs::create_directories(where_);
    if (::mount("dbg_test", where_.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) fail("mount");
  }
  ~Disk() { ::umount2(where_.c_str(), MNT_DETACH); }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  void make_read_only(bool read_only) const {
    unsigned long flags = MS_REMOUNT;
    if (read_only) flags |= MS_RDONLY;
    if (::mount(nullptr, where_.c_str(), nullptr, flags, nullptr) != 0) fail("remount");
  }
  /// Leaves about that many bytes.
  void fill_up_to(std::size_t left) const { test::write_text(filler(), std::string(kDiskBytes - left, 'x')); }
  void make_room() const { fs::remove(filler()); }
  fs::path filler() const { return where_ / "filler"; }

 private:
  [[noreturn]] static void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }
  fs::path where_;
};

class DiskFaultsTest : public test::DiskFaultsFixture {};

TEST_F(DiskFaultsTest, AFullDiskCostsRecordsAndNotTheRun) {
  const Disk disk(folder_ / "disk");
  Dumper dumper(config());
  const at::Tensor result = run_model(&dumper, [](int) {});
  EXPECT_TRUE(at::equal(result, run_model()));
  const DumperCounters counters = dumper.state().counters;
  EXPECT_GE(counters.written, 12u) << "a MiB holds some twelve of the large ones";
  EXPECT_GE(counters.failed, 20u);
  expect_all_explained(dumper);
  EXPECT_GE(log_.count("No space left on device (ENOSPC)"), 1u);
  EXPECT_GE(log_.count("bytes not written"), 1u);
  EXPECT_LE(log_.count("ENOSPC"), 7u) << "1, 2, 4 ... 64: said at a limited rate";
}

TEST_F(DiskFaultsTest, DumpingGoesOnWhenSpaceReturns) {
  const Disk disk(folder_ / "disk");
  Dumper dumper(config());
  std::uint64_t written_before_room = 0;
  const at::Tensor result = run_model(&dumper, [&](int step) {
    if (step == 3) disk.fill_up_to(3 * 4096);
    if (step != 12) return;
    written_before_room = dumper.state().counters.written;
    fs::remove_all(run());
    disk.make_room();
  });
  EXPECT_TRUE(at::equal(result, run_model()));
  EXPECT_GT(dumper.state().counters.failed, 0u);
  EXPECT_GT(dumper.state().counters.written, written_before_room);
  expect_all_explained(dumper, written_before_room);
  const auto steps = test::tags_in(run(), "step");
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front(), "12") << "the first dump after the room came back is there";
}

TEST_F(DiskFaultsTest, AReadOnlyDiskCostsRecordsAndNotTheRun) {
  const Disk disk(folder_ / "disk");
  disk.make_read_only(true);
  Dumper dumper(config());
  const at::Tensor result = run_model(&dumper, [&](int step) {
    if (step == 20) disk.make_read_only(false);
  });
  EXPECT_TRUE(at::equal(result, run_model()));
  EXPECT_EQ(dumper.state().counters.failed, 60u);
  EXPECT_EQ(dumper.state().counters.written, 12u);
  expect_all_explained(dumper);
  EXPECT_GE(log_.count("Read-only file system (EROFS)"), 1u);
}

// Without exp_name and with peers the first thing to fail is the board.
TEST_F(DiskFaultsTest, AReadOnlyDiskCostsAWarningWhereTheNameIsAgreedOn) {
  const Disk disk(folder_ / "disk");
  disk.make_read_only(true);
  DumperConfig unnamed = config();
  unnamed.exp_name.reset();
  Dumper dumper(unnamed);
  const ParticipantScope bound(std::make_shared<const Participant>(1, 2));
  const at::Tensor result = run_model(&dumper, [](int) {});
  EXPECT_TRUE(at::equal(result, run_model()));
  EXPECT_EQ(log_.count("goes on with its own exp_name"), 1u);
  EXPECT_EQ(dumper.state().counters.failed, std::uint64_t{3 * kSteps});
}

bool write_file(const char* path, const std::string& text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(file);
  return written;
}

// Gives this process mounts of its own: as root, or as an ordinary user where user namespaces are allowed.
bool may_mount() {
  const auto user = ::geteuid();
  const auto group = ::getegid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (!write_file("/proc/self/setgroups", "deny") ||
        !write_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") ||
        !write_file("/proc/self/gid_map", "0 " + std::to_string(group) + " 1")) {
      return false;
    }
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace
}  // namespace dbg

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!dbg::may_mount()) {
    std::printf("SKIPPED: this user may not mount file systems (%s)\n", std::strerror(errno));
    return 77;
  }
  return RUN_ALL_TESTS();
}
