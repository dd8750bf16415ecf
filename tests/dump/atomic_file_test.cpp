// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about files that appear whole or not at all.
#include "dump/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "dbg/error.h"
#include "support/temp_folder.h"

namespace dbg::dumping {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string base36(pid_t number) {
  char digits[16];
  return std::string(digits, std::to_chars(std::begin(digits), std::end(digits), number, 36).ptr);
}

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777u;
}

// Fails the n-th call of one kind with an errno; n counts from 1, 0 is never.
class FaultyFiles final : public FileSystem {
 public:
  int fail_create = 0, fail_write = 0, fail_close = 0, fail_rename = 0, fail_link = 0;
  int error = ENOSPC;
  std::size_t short_write = 0;
  int unlinks = 0;

  int create(const char* path) noexcept override { return --fail_create == 0 ? -error : FileSystem::create(path); }
  ssize_t write(int descriptor, const void* data, std::size_t size) noexcept override {
    if (--fail_write == 0) return -error;
    return FileSystem::write(descriptor, data, short_write == 0 ? size : std::min(size, short_write));
  }
  int close(int descriptor) noexcept override {
    const int result = FileSystem::close(descriptor);
    return --fail_close == 0 ? -error : result;
  }
  int rename_no_replace(const char* from, const char* to) noexcept override {
    return --fail_rename == 0 ? -error : FileSystem::rename_no_replace(from, to);
  }
  int link(const char* from, const char* to) noexcept override {
    return --fail_link == 0 ? -error : FileSystem::link(from, to);
  }
  int unlink(const char* path) noexcept override {
    ++unlinks;
    return FileSystem::unlink(path);
  }
};

class AtomicFileTest : public testing::Test {
 protected:
  std::string folder() const { return temp_.path().string(); }
  test::TempFolder temp_;
};

TEST_F(AtomicFileTest, AppearsWholeUnderItsName) {
  AtomicFile file(folder());
  EXPECT_EQ(file.write("abc", 3), 0);
  const std::vector<std::string> before = names_in(folder());
  ASSERT_EQ(before.size(), 1u);
  EXPECT_THAT(before[0], StartsWith(".dbgtmp-"));
  EXPECT_THAT(before[0], HasSubstr("-" + base36(::getpid()) + "-"));
  EXPECT_THAT(before[0], testing::Not(HasSubstr(".pt")));
  EXPECT_LT(before[0].size(), 40u);
  EXPECT_EQ(file.write("def", 3), 0);
  EXPECT_TRUE(file.publish("x.pt"));
  EXPECT_THAT(names_in(folder()), ElementsAre("x.pt"));
  EXPECT_EQ(contents_of(temp_ / "x.pt"), "abcdef");
  EXPECT_EQ(file.size_bytes(), 6u);
}

// What a program without stderr prints, and what dbg's log lines say, would else stand in the middle of a record.
TEST_F(AtomicFileTest, NoFileTakesTheNumberOfAClosedStream) {
  std::vector<int> kept;
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
    kept.push_back(::fcntl(stream, F_DUPFD_CLOEXEC, 100));
    ::close(stream);
  }
  const int made = FileSystem::real().create((folder() + "/made").c_str());
  const bool is_free = ::fcntl(STDIN_FILENO, F_GETFD) == -1;
  const int flags = ::fcntl(made, F_GETFD);

  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low{STDERR_FILENO + 1, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &low);
  const int beyond = FileSystem::real().create((folder() + "/beyond").c_str());
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
    ::dup2(kept[static_cast<std::size_t>(stream)], stream);
    ::close(kept[static_cast<std::size_t>(stream)]);
  }
  EXPECT_GT(made, STDERR_FILENO);
  EXPECT_TRUE(is_free);
  EXPECT_EQ(flags, FD_CLOEXEC);
  EXPECT_EQ(beyond, -EMFILE);
  EXPECT_THAT(names_in(folder()), ElementsAre("made")) << "nothing stays of a file that could not be had";
  EXPECT_EQ(FileSystem::real().close(made), 0);
}

TEST_F(AtomicFileTest, ALimitThatFallsMeanwhileIsAnErrorAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  AtomicFile file(folder());
  const rlimit low{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const std::string text(5000, 'x');
  const int error = file.write(text.data(), text.size());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(error, EFBIG);
  EXPECT_THROW(file.publish("x.pt"), IoError);
}

TEST_F(AtomicFileTest, AFaultSaysWhatToDo) {
  const auto message_for = [&](int error) {
    FaultyFiles files;
    files.fail_write = 1;
    files.error = error;
    AtomicFile file(folder(), files);
    file.write("a", 1);
    try {
      file.publish("x.pt");
    } catch (const IoError& fault) {
      return std::string(fault.what());
    }
    return std::string();
  };
  EXPECT_THAT(message_for(ENOSPC), HasSubstr("(ENOSPC). Free some space there, or set DUMPER_DIR"));
  EXPECT_THAT(message_for(EDQUOT), HasSubstr("(EDQUOT). Free some space"));
  EXPECT_THAT(message_for(EACCES), HasSubstr("(EACCES). Set DUMPER_DIR to a folder where this user may write"));
  EXPECT_THAT(message_for(EROFS), HasSubstr("(EROFS). Set DUMPER_DIR"));
  EXPECT_THAT(message_for(EMFILE), HasSubstr("(EMFILE). Raise the number of open files"));
  EXPECT_THAT(message_for(EIO), testing::EndsWith("(EIO)"));
}

TEST_F(AtomicFileTest, FilesAndNewFoldersAreTheOwnersOnly) {
  const mode_t before = ::umask(0);
  AtomicFile file(folder() + "/a/b//c/");
  EXPECT_TRUE(file.publish("x.pt"));
  ::umask(before);
  EXPECT_EQ(mode_of(temp_ / "a/b/c/x.pt"), 0600u);
  for (const char* made : {"a", "a/b", "a/b/c"}) EXPECT_EQ(mode_of(temp_ / made), 0700u) << made;
}

TEST_F(AtomicFileTest, AnExistingFolderKeepsItsMode) {
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  EXPECT_TRUE(AtomicFile(folder()).publish("x.pt"));
  EXPECT_EQ(mode_of(folder()), 0755u);
}

TEST_F(AtomicFileTest, ATakenNameIsLeftAndAnotherMayBeTried) {
  std::ofstream(temp_ / "x.pt") << "old";
  AtomicFile file(folder());
  file.write("new", 3);
  EXPECT_FALSE(file.publish("x.pt"));
  EXPECT_FALSE(file.publish("x.pt"));
  EXPECT_TRUE(file.publish("y.pt"));
  EXPECT_EQ(contents_of(temp_ / "x.pt"), "old");
  EXPECT_EQ(contents_of(temp_ / "y.pt"), "new");
  EXPECT_THROW(file.publish("z.pt"), LogicError);
  EXPECT_THAT(names_in(folder()), ElementsAre("x.pt", "y.pt"));
}

TEST_F(AtomicFileTest, WithoutPublishNothingStays) {
  { AtomicFile(folder()).write("abc", 3); }
  EXPECT_THAT(names_in(folder()), IsEmpty());
}

TEST_F(AtomicFileTest, FileSystemsThatCantRenameSafelyLink) {
  for (const int unsupported : {EINVAL, ENOSYS, EOPNOTSUPP}) {
    FaultyFiles files;
    files.error = unsupported;
    files.fail_rename = 1;
    AtomicFile file(folder(), files);
    file.write("abc", 3);
    EXPECT_TRUE(file.publish("x.pt"));
    EXPECT_EQ(files.unlinks, 1);
    EXPECT_EQ(contents_of(temp_ / "x.pt"), "abc");
    files.fail_rename = 1;
    AtomicFile second(folder(), files);
    EXPECT_FALSE(second.publish("x.pt"));
    EXPECT_TRUE(second.publish("y.pt"));
    EXPECT_THAT(names_in(folder()), ElementsAre("x.pt", "y.pt"));
    std::filesystem::remove(temp_ / "x.pt");
    std::filesystem::remove(temp_ / "y.pt");
  }
}

TEST_F(AtomicFileTest, ShortWritesAreContinued) {
  FaultyFiles files;
  files.short_write = 7;
  AtomicFile file(folder(), files);
  const std::string text(1000, 'x');
  EXPECT_EQ(file.write(text.data(), text.size()), 0);
  EXPECT_TRUE(file.publish("x.pt"));
  EXPECT_EQ(contents_of(temp_ / "x.pt"), text);
}

struct Fault {
  const char* what;
  int FaultyFiles::*call;
};

TEST_F(AtomicFileTest, EveryFailedCallIsAnErrorAndLeavesNothing) {
  for (const Fault& fault : {Fault{"create", &FaultyFiles::fail_create}, Fault{"write", &FaultyFiles::fail_write},
                             Fault{"close", &FaultyFiles::fail_close}, Fault{"rename", &FaultyFiles::fail_rename}}) {
    for (const int error : {ENOSPC, EDQUOT, EACCES, EROFS, EIO}) {
      FaultyFiles files;
      files.error = error;
      files.*fault.call = 1;
      try {
        AtomicFile file(folder(), files);
        file.write("abc", 3);
        EXPECT_EQ(file.write("def", 3), fault.call == &FaultyFiles::fail_write ? error : 0);
        file.publish("x.pt");
        FAIL() << fault.what;
      } catch (const IoError& caught) {
        EXPECT_EQ(caught.code(), error) << fault.what;
        EXPECT_THAT(caught.what(), HasSubstr(folder())) << fault.what;
      }
      EXPECT_THAT(names_in(folder()), IsEmpty()) << fault.what;
    }
  }
}

TEST_F(AtomicFileTest, NothingIsWrittenAfterAFailedWrite) {
  FaultyFiles files;
  files.fail_write = 2;
  AtomicFile file(folder(), files);
  EXPECT_EQ(file.write("a", 1), 0);
  EXPECT_EQ(file.write("b", 1), ENOSPC);
  EXPECT_EQ(file.write("c", 1), ENOSPC);
  EXPECT_EQ(file.size_bytes(), 1u);
}

TEST_F(AtomicFileTest, AFolderThatVanishesIsNamedAndComesBackWithTheNextFile) {
  const std::string inner = folder() + "/inner";
  {
    AtomicFile file(inner);
    std::filesystem::remove_all(inner);
    file.write("abc", 3);
    try {
      file.publish("x.pt");
      FAIL();
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOENT);
      EXPECT_THAT(error.what(), HasSubstr(inner));
    }
  }
  EXPECT_TRUE(AtomicFile(inner).publish("y.pt"));
  EXPECT_THAT(names_in(inner), ElementsAre("y.pt"));
}

TEST_F(AtomicFileTest, AFileInTheFoldersPlaceIsAnError) {
  std::ofstream(temp_ / "file") << "x";
  for (const char* inner : {"/file", "/file/deeper"}) {
    try {
      AtomicFile file(folder() + inner);
      FAIL();
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), ENOTDIR);
    }
  }
}

TEST_F(AtomicFileTest, TheFileSizeLimitIsAnErrorAndNoSignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  {
    AtomicFile file(folder());
    const std::string text(600, 'x');
    EXPECT_EQ(file.write(text.data(), text.size()), 0);
    EXPECT_EQ(file.write(text.data(), text.size()), EFBIG);
    EXPECT_EQ(std::filesystem::file_size(folder() + "/" + names_in(folder()).at(0)), 600u)
        << "what can't come whole is not begun";
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(names_in(folder()), IsEmpty());
}

TEST_F(AtomicFileTest, ThreadsDoNotDisturbOneAnother) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 100; ++i) {
        AtomicFile file(folder());
        const std::string text = std::to_string(t);
        file.write(text.data(), text.size());
        // All four want the same hundred names.
        int attempt = i;
        while (!file.publish(std::to_string(attempt) + ".pt")) ++attempt;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(names_in(folder()).size(), 400u);
}

TEST_F(AtomicFileTest, OnlyLeftoversOfDeadProcessesAreRemoved) {
  AtomicFile alive(folder());
  const std::string own = names_in(folder()).at(0);
  const std::string machine = own.substr(0, own.find('-', 8) + 1);
  const std::string self = base36(::getpid());
  // No process has this number: it is above the kernel's largest.
  const std::string dead = machine + base36(2147483646) + "-c-0";
  // This number lives, but belonged to an earlier process when the file was made.
  const std::string earlier = machine + self + "-1-0";
  const std::vector<std::string> kept = {own,
                                         machine + self + "-0-7",
                                         ".dbgtmp-0-" + base36(2147483646) + "-c-0",
                                         dead + ".pt",
                                         dead + "-1",
                                         machine + base36(2147483646) + "-c",
                                         machine + "-5-c-0",
                                         machine + "0-c-0",
                                         ".dbgtmp-x",
                                         "step=0___rank=0___dump_index=1.pt"};
  for (const std::string& name : kept) std::ofstream(temp_ / name, std::ios::app);
  for (const std::string& name : {dead, earlier}) std::ofstream(temp_ / name) << "x";
  EXPECT_EQ(remove_stale_temporaries(folder()), 2u);
  EXPECT_THAT(names_in(folder()), testing::UnorderedElementsAreArray(kept));
  EXPECT_EQ(remove_stale_temporaries(folder()), 0u);
  EXPECT_EQ(remove_stale_temporaries(folder() + "/missing"), 0u);
}

}  // namespace
}  // namespace dbg::dumping
