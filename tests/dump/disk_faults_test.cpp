// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Disks that are full, read-only, forbidden or gone: the run's results stay bit for bit, every record is accounted for,
// and dumping goes on when the cause is gone. Mounts file systems of its own, in a mount namespace of its own; where
// that is not allowed it is skipped (77).
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "support/log_capture.h"
#include "support/record_files.h"
#include "support/temp_folder.h"
#include "support/torch_archive.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kDiskBytes = std::size_t{1} << 20;
constexpr int kSteps = 24;
constexpr uid_t kNobody = 65534;

// A run that could be anybody's: each step's result depends on all before. With a Dumper it dumps three values a step.
template <class AtStep>
at::Tensor run_model(Dumper* dumper, AtStep&& at_step) {
  at::Tensor x = at::arange(20000, at::kFloat) / 20000;
  for (int step = 0; step < kSteps; ++step) {
    at_step(step);
    const at::Tensor hidden = at::tanh(x * 1.7 - 0.3);
    const at::Tensor scale = hidden.abs().mean();
    x = x * 0.5 + hidden * scale;
    if (dumper == nullptr) continue;
    dumper->dump("hidden", hidden, {{"layer_id", step}});
    dumper->dump("scale", scale);
    dumper->dump("x", [&] { return x; });
    dumper->step();
  }
  return x;
}

at::Tensor run_model() {
  return run_model(nullptr, [](int) {});
}

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

class DiskFaultsTest : public testing::Test {
 protected:
  DumperConfig config() const {
    DumperConfig config = test::quiet_config(folder_ / "disk");
    config.exp_name = "run";
    return config;
  }
  fs::path run() const { return folder_ / "disk/run"; }

  // Each of the run's calls is one record or one fault, what is there reads whole, and nothing else is there.
  void expect_all_explained(Dumper& dumper, std::uint64_t lost_with_their_folder = 0) const {
    const DumperCounters counters = dumper.state().counters;
    EXPECT_EQ(counters.written + counters.failed, std::uint64_t{3 * kSteps});
    EXPECT_EQ(counters.filtered + counters.skipped + counters.dropped, 0u);
    const auto records = list_records(run().string());
    EXPECT_EQ(records.size() + lost_with_their_folder, counters.written);
    for (const std::string& record : records) {
      const std::size_t bytes = test::tag_of(record, "name") == "scale" ? 4 : 80000;
      EXPECT_EQ(test::first_tensor_bytes(record).size(), bytes) << record;
    }
    EXPECT_EQ(test::names_in(run()).size(), records.size()) << "something half-written stayed";
  }

  test::TempFolder folder_;
  test::LogCapture log_;
};

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

TEST_F(DiskFaultsTest, AForbiddenFolderCostsRecordsAndNotTheRun) {
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

TEST_F(DiskFaultsTest, AFolderThatVanishesInTheMiddleComesBack) {
  const Disk disk(folder_ / "disk");
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
