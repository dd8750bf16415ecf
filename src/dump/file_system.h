// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The system calls that writing a file takes, as a seam: tests override single ones to fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace dbg::dumping {

/// The file system itself. Calls return what the system call does, or the negated errno; none is retried here but for
/// EINTR. Threads: safe to call from any thread.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Creates `path`, which must not exist, for its owner only; returns a descriptor that no child process inherits. It
  /// is never that of stdin, stdout or stderr, though these be closed.
  virtual int create(const char* path) noexcept;
  /// Beyond RLIMIT_FSIZE: -EFBIG, and no signal.
  virtual ssize_t write(int descriptor, const void* data, std::size_t size) noexcept;
  /// Closes the descriptor in any case. Some file systems tell a failed write only here.
  virtual int close(int descriptor) noexcept;
  /// Renames, unless `to` exists (-EEXIST). Not every file system can: -EINVAL, -ENOSYS or -EOPNOTSUPP then.
  virtual int rename_no_replace(const char* from, const char* to) noexcept;
  virtual int link(const char* from, const char* to) noexcept;
  virtual int unlink(const char* path) noexcept;
  /// Creates a folder for its owner only.
  virtual int make_folder(const char* path) noexcept;
  /// How large a file this process may write (RLIMIT_FSIZE).
  virtual std::uint64_t file_size_limit() noexcept;

  static FileSystem& real() noexcept;
};

/// Creates `path` and its missing parents for their owner only; existing ones are left as they are.
/// Returns 0, or the errno.
int make_folders(FileSystem& files, const char* path);

}  // namespace dbg::dumping
