// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The real file system.
#include "dump/file_system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <string>

#include "base/fork_lock.h"
#include "base/quiet_write.h"

namespace dbg::dumping {
namespace {

template <class Call>
auto retry_interrupted(Call&& call) noexcept {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result < 0 ? static_cast<decltype(result)>(-errno) : result;
}

// Leaked on purpose: records may be written while the process exits.
constinit base::Leaked<FileSystem> real_files;

}  // namespace

int FileSystem::create(const char* path) noexcept {
  const int made = retry_interrupted([&] { return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); });
  if (made < 0 || made > STDERR_FILENO) return made;
  // The program runs without stdin, stdout or stderr: what anybody writes there must not land in the record.
  const int moved = retry_interrupted([&] { return ::fcntl(made, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); });
  ::close(made);
  if (moved >= 0) return moved;
  ::unlink(path);
  return moved == -EINVAL ? -EMFILE : moved;  // what fcntl calls a number beyond the limit
}

ssize_t FileSystem::write(int descriptor, const void* data, std::size_t size) noexcept {
  return retry_interrupted([&] { return base::write_quietly(descriptor, data, size); });
}

int FileSystem::close(int descriptor) noexcept {
  // Linux has closed the descriptor even where it says EINTR; closing again could hit another thread's file.
  return ::close(descriptor) == 0 || errno == EINTR ? 0 : -errno;
}

int FileSystem::rename_no_replace(const char* from, const char* to) noexcept {
  return retry_interrupted([&] { return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE); });
}

int FileSystem::link(const char* from, const char* to) noexcept {
  return retry_interrupted([&] { return ::link(from, to); });
}

int FileSystem::unlink(const char* path) noexcept {
  return retry_interrupted([&] { return ::unlink(path); });
}

int FileSystem::make_folder(const char* path) noexcept {
  return retry_interrupted([&] { return ::mkdir(path, 0700); });
}

std::uint64_t FileSystem::file_size_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::uint64_t>::max();
  }
  return limit.rlim_cur;
}

FileSystem& FileSystem::real() noexcept {
  return real_files.value;
}

int make_folders(FileSystem& files, const char* path) {
  const int result = files.make_folder(path);
  if (result == 0 || result == -EEXIST) return 0;
  if (result != -ENOENT) return -result;
  std::string parent(path);
  while (parent.size() > 1 && parent.back() == '/') parent.pop_back();
  const std::size_t slash = parent.rfind('/');
  if (slash == std::string::npos || slash == 0) return ENOENT;
  parent.resize(slash);
  const int error = make_folders(files, parent.c_str());
  if (error != 0) return error;
  const int again = files.make_folder(path);
  return again == -EEXIST ? 0 : -again;
}

}  // namespace dbg::dumping
