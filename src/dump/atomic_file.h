// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A file that stands under its final name only when it is whole, and replaces none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "codec/byte_sink.h"
#include "dump/file_system.h"

namespace dbg::dumping {

/// Collects bytes under a temporary name in the folder and then takes the final name in one step. Whatever goes wrong,
/// and when the object is destroyed before, the temporary file is removed.
///
/// Temporary names are `.dbgtmp-<machine>-<pid>-<start>-<number>`, numbers in base 36: the machine as a hash of boot
/// and pid namespace, the process' start time in clock ticks since boot. They tell the files of processes that are
/// gone.
///
/// Not synced to the disk: a whole record survives the death of the process, not that of the machine.
///
/// Threads: one thread at a time; several files in one folder at once are fine.
class AtomicFile final : public codec::ByteSink {
 public:
  /// Starts a file in `folder`, which is created (its parents too, for the owner only) when it is not there.
  /// Throws: IoError with the errno.
  explicit AtomicFile(std::string folder, FileSystem& files = FileSystem::real());
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() override;

  /// Appends. Returns 0, or the errno of the first failure, which `publish` repeats.
  int write(const void* data, std::size_t size) noexcept override;

  /// Gives the file its final name, a single component. Returns false when there is a file of that name already: it is
  /// left as it is, and another name may be tried.
  /// Throws: IoError with the errno, a failed write's too.
  bool publish(std::string_view name);

  /// How much has been written.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

 private:
  void close_descriptor() noexcept;
  [[noreturn]] void fail(std::string_view what, int error) const;

  std::string folder_;
  FileSystem& files_;
  std::uint64_t limit_bytes_;
  std::uint64_t size_bytes_ = 0;
  std::string temporary_;
  int descriptor_ = -1;
  int error_ = 0;
};

/// Whether `name` is that of a temporary file, whoever owns it.
bool is_temporary_name(std::string_view name) noexcept;

/// Removes the temporary files that dead processes of this machine left in `folder`; those of live processes, of other
/// machines and of other containers stay. Returns how many it removed. Never throws: what can't be read or removed
/// stays.
std::size_t remove_stale_temporaries(const std::string& folder, FileSystem& files = FileSystem::real()) noexcept;

}  // namespace dbg::dumping
