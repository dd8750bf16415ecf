// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Processes that die while they write records: at any byte, before and after any system call.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dump/atomic_file.h"
#include "dump/dump_record.h"
#include "support/temp_folder.h"

extern char** environ;

namespace dbg::dumping {
namespace {

constexpr const char* kChildFlag = "--write-until-killed";
constexpr int kRecords = 4;

// Each byte and each call costs one; when the budget is used up, the process kills itself.
class DyingFiles final : public FileSystem {
 public:
  explicit DyingFiles(std::int64_t budget) : budget_(budget) {}

  std::int64_t spent() const { return spent_; }

  int create(const char* path) noexcept override {
    spend();
    return FileSystem::create(path);
  }
  ssize_t write(int descriptor, const void* data, std::size_t size) noexcept override {
    const auto left = static_cast<std::size_t>(budget_ - spent_);
    if (left < size) {
      FileSystem::write(descriptor, data, left);
      ::kill(::getpid(), SIGKILL);
    }
    spent_ += static_cast<std::int64_t>(size);
    return FileSystem::write(descriptor, data, size);
  }
  int close(int descriptor) noexcept override {
    spend();
    return FileSystem::close(descriptor);
  }
  int rename_no_replace(const char* from, const char* to) noexcept override {
    spend();
    return rename_works ? FileSystem::rename_no_replace(from, to) : -EINVAL;
  }
  int link(const char* from, const char* to) noexcept override {
    spend();
    return FileSystem::link(from, to);
  }
  int unlink(const char* path) noexcept override {
    spend();
    return FileSystem::unlink(path);
  }

  bool rename_works = true;

 private:
  void spend() noexcept {
    if (spent_ == budget_) ::kill(::getpid(), SIGKILL);
    ++spent_;
  }

  std::int64_t budget_;
  std::int64_t spent_ = 0;
};

void write_records(const std::string& folder, FileSystem& files) {
  for (int i = 0; i < kRecords; ++i) {
    c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
    meta.insert("dump_index", std::int64_t{i});
    // Small ones, and ones of several writes.
    const at::Tensor value = at::arange(i % 2 == 0 ? 3 : 50000);
    store_record(folder, std::to_string(i) + ".pt", {value, meta}, {}, files);
  }
}

std::map<std::string, std::string> files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return files;
}

// Runs the child; returns its wait status.
int run_child(const std::string& folder, std::int64_t budget, bool rename_works) {
  std::string program = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> words = {program, kChildFlag, folder, std::to_string(budget), rename_works ? "1" : "0"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

TEST(RecordKillTest, NoUnreadableRecordUnderAFinalName) {
  const test::TempFolder whole_folder;
  DyingFiles counting(std::int64_t{1} << 40);
  write_records(whole_folder.path(), counting);
  const std::map<std::string, std::string> whole = files_in(whole_folder.path());
  ASSERT_EQ(whole.size(), kRecords);

  std::mt19937_64 random(20);
  int deaths_with_leftovers = 0;
  for (int i = 0; i < 50; ++i) {
    // Half of them around the system calls, where a record ends: a plain draw would nearly always hit the bytes of a
    // large tensor.
    std::int64_t budget = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(counting.spent()));
    if (i % 2 == 0) {
      std::int64_t end = 0;
      const auto records = static_cast<std::int64_t>(random() % kRecords);
      for (std::int64_t r = 0; r <= records; ++r)
        end += 3 + static_cast<std::int64_t>(whole.at(std::to_string(r) + ".pt").size());
      budget = end - 4 + static_cast<std::int64_t>(random() % 6);
    }
    budget = std::clamp<std::int64_t>(budget, 0, counting.spent() - 1);
    SCOPED_TRACE(budget);
    const test::TempFolder folder;
    const int status = run_child(folder.path(), budget, i % 4 != 3);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    const auto check_records = [&] {
      int leftovers = 0;
      for (const auto& [name, bytes] : files_in(folder.path())) {
        if (name.ends_with(".pt")) {
          EXPECT_EQ(bytes, whole.at(name)) << name;
        } else {
          ++leftovers;
        }
      }
      return leftovers;
    };
    const int leftovers = check_records();
    EXPECT_LE(leftovers, 1);
    deaths_with_leftovers += leftovers;
    EXPECT_EQ(remove_stale_temporaries(folder.path()), static_cast<std::size_t>(leftovers));
    EXPECT_EQ(check_records(), 0);
  }
  EXPECT_GT(deaths_with_leftovers, 25);
}

}  // namespace
}  // namespace dbg::dumping

int main(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == dbg::dumping::kChildFlag) {
    dbg::dumping::DyingFiles files(std::atoll(argv[3]));
    files.rename_works = argv[4][0] == '1';
    dbg::dumping::write_records(argv[2], files);
    return 1;  // it should not have come this far
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
