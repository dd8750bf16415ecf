// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Records as files in one folder: names, modes, taken names, folders that vanish, leftovers of the dead.
#include "dump/file_sink.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dbg/error.h"
#include "dump/atomic_file.h"
#include "support/record_files.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

RecordDraft draft_of(std::int64_t dump_index, std::string_view name, const at::Tensor& value) {
  RecordDraft draft;
  draft.pairs = {{"step", 0}, {"rank", 0}, {"dump_index", dump_index}, {"name", name}};
  draft.value = value;
  return draft;
}

std::string name_of(int dump_index, const std::string& name) {
  return "step=0___rank=0___dump_index=" + std::to_string(dump_index) + "___name=" + name + ".pt";
}

// How many bytes this process has handed to write(2) so far; nullopt where the kernel does not say.
std::optional<std::uint64_t> bytes_written_by_process() {
  std::ifstream counters("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  while (counters >> key >> value) {
    if (key == "wchar:") return value;
  }
  return std::nullopt;
}

class FileSinkTest : public testing::Test {
 protected:
  std::string folder() const { return (temp_ / "base/run").string(); }

  test::TempFolder temp_;
  const at::Tensor three_ = at::arange(3, at::kFloat);
};

TEST_F(FileSinkTest, WritesOneFileOfTheDraftsName) {
  FileSink sink(folder(), true);
  EXPECT_FALSE(fs::exists(folder())) << "a run that records nothing leaves no folder";
  const SinkOutcome outcome = sink.write(draft_of(1, "x", three_));
  EXPECT_FALSE(outcome.taken);
  EXPECT_THAT(test::names_in(folder()), ElementsAre(name_of(1, "x")));
  EXPECT_EQ(outcome.bytes, fs::file_size(fs::path(folder()) / name_of(1, "x")));
}

TEST_F(FileSinkTest, ATakenNameIsSaidAndLeftAlone) {
  FileSink sink(folder(), true);
  sink.write(draft_of(1, "x", three_));
  const std::string before = test::bytes_of(fs::path(folder()) / name_of(1, "x"));
  EXPECT_TRUE(sink.write(draft_of(1, "x", three_ + 1)).taken);
  EXPECT_TRUE(FileSink(folder(), true).write(draft_of(1, "x", three_ + 2)).taken) << "another process, say";
  EXPECT_EQ(test::bytes_of(fs::path(folder()) / name_of(1, "x")), before);
  EXPECT_THAT(test::names_in(folder()), ElementsAre(name_of(1, "x")));
}

// A long phase before this one has taken thousands of names; each attempt must not write the tensor again.
TEST_F(FileSinkTest, PassingManyTakenNamesCostsNoWriting) {
  constexpr int kTaken = 50;
  FileSink sink(folder(), true);
  for (int i = 1; i <= kTaken; ++i) sink.write(draft_of(i, "x", three_));
  const at::Tensor large = at::zeros({1 << 18}, at::kFloat);
  const auto before = bytes_written_by_process();
  if (!before) GTEST_SKIP() << "no /proc/self/io here";
  FileSink later(folder(), true);
  for (int i = 1; i <= kTaken; ++i) EXPECT_TRUE(later.write(draft_of(i, "x", large)).taken);
  EXPECT_FALSE(later.write(draft_of(kTaken + 1, "x", large)).taken);
  const std::uint64_t written = *bytes_written_by_process() - *before;
  EXPECT_GE(written, large.nbytes());
  EXPECT_LT(written, 4 * large.nbytes());
}

TEST_F(FileSinkTest, FolderAndFilesAreTheOwnersOnly) {
  const mode_t before = ::umask(0);
  FileSink(folder(), true).write(draft_of(1, "x", three_));
  ::umask(before);
  EXPECT_EQ(test::mode_of(temp_ / "base"), 0700u);
  EXPECT_EQ(test::mode_of(folder()), 0700u);
  EXPECT_EQ(test::mode_of(fs::path(folder()) / name_of(1, "x")), 0600u);
}

TEST_F(FileSinkTest, AFolderThatVanishedComesBack) {
  FileSink sink(folder(), true);
  sink.write(draft_of(1, "x", three_));
  fs::remove_all(temp_ / "base");
  EXPECT_FALSE(sink.write(draft_of(2, "x", three_)).taken);
  EXPECT_THAT(test::names_in(folder()), ElementsAre(name_of(2, "x")));
  EXPECT_EQ(test::mode_of(folder()), 0700u);
}

TEST_F(FileSinkTest, ARelativeFolderStaysWhereItWas) {
  const fs::path before = fs::current_path();
  fs::current_path(temp_.path());
  FileSink sink("run", true);
  sink.write(draft_of(1, "x", three_));
  fs::current_path("/");
  sink.write(draft_of(2, "x", three_));
  fs::current_path(before);
  EXPECT_THAT(test::names_in(temp_ / "run"), SizeIs(2));
}

TEST_F(FileSinkTest, LeftoversOfDeadProcessesGoAtTheStart) {
  test::leave_temporary_of_dead_process(folder());
  const dumping::AtomicFile mine(folder());
  ASSERT_THAT(test::names_in(folder()), SizeIs(2));
  const FileSink sink(folder(), true);
  EXPECT_THAT(test::names_in(folder()), ElementsAre(StartsWith(".dbgtmp-")));
  const dumping::AtomicFile another(folder());
  EXPECT_THAT(test::names_in(folder()), SizeIs(2)) << "the living one's stayed";
}

TEST_F(FileSinkTest, AFailureSaysWhatWhereAndHowMuch) {
  test::write_text(temp_ / "base", "a file where the folder should be");
  FileSink sink(folder(), true);
  try {
    sink.write(draft_of(1, "x", at::zeros({1000}, at::kFloat)));
    FAIL() << "wrote into a file";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOTDIR);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder()), HasSubstr(name_of(1, "x")), HasSubstr("ENOTDIR"),
                                    testing::ContainsRegex("of [4-9][0-9]{3} bytes")));
  }
}

TEST_F(FileSinkTest, ThreadsWriteAtOnce) {
  FileSink sink(folder(), true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name(1, static_cast<char>('a' + t));
      for (int i = 1; i <= 50; ++i) EXPECT_FALSE(sink.write(draft_of(i, name, three_)).taken);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(list_records(folder()).size(), 200u);
  EXPECT_EQ(test::names_in(folder()).size(), 200u);
}

// Where a relative folder is, nobody knows then; and a record somewhere else would be lost.
TEST_F(FileSinkTest, RelativeFolderWithoutWorkingFolderIsAFaultThatSaysSo) {
  const test::TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "gone");
  std::filesystem::current_path(folder / "gone");
  std::filesystem::remove(folder / "gone");
  std::string message;
  try {
    FileSink sink("relative", true);
  } catch (const IoError& error) {
    message = error.what();
    EXPECT_EQ(error.code(), ENOENT);
  }
  EXPECT_NO_THROW(FileSink((folder / "absolute").string(), true));
  std::filesystem::current_path(before);
  EXPECT_THAT(message, testing::HasSubstr("records can't go to 'relative'"));
  EXPECT_THAT(message, testing::HasSubstr("the working folder was removed. Set DUMPER_DIR to an absolute path"));
}

}  // namespace
}  // namespace dbg
