// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Temporary names, publishing, and telling whose files are left over.
#include "dump/atomic_file.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "base/no_cancellation.h"
#include "dbg/error.h"

namespace dbg::dumping {
namespace {

constexpr std::string_view kPrefix = ".dbgtmp-";
// Short names are cheaper: from 40 bytes on, Linux allocates one for each name it caches.
constexpr int kBase = 36;
// The kernel writes at most this much at once; a larger request would only come back short.
constexpr std::size_t kMaxWriteBytes = std::size_t{0x7ffff000};

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// When a process started, in clock ticks since boot; 0 when it can't be told.
std::uint64_t start_of(pid_t process) {
  const std::string text = contents_of(formatted("/proc/{}/stat", process));
  // The second field is the program's name in parentheses, which may hold anything; the start is the 22nd.
  std::size_t position = text.rfind(')');
  for (int field = 2; field < 22 && position != std::string::npos; ++field) position = text.find(' ', position + 1);
  std::uint64_t start = 0;
  if (position != std::string::npos) std::from_chars(text.data() + position + 1, text.data() + text.size(), start);
  return start;
}

// Tells machines, boots and containers apart: a process number means nothing elsewhere.
std::uint32_t machine() {
  std::string text = contents_of("/proc/sys/kernel/random/boot_id");
  char name_space[64] = {};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name_space, sizeof name_space);
  if (length > 0) text.append(name_space, static_cast<std::size_t>(length));
  std::uint32_t hash = 0x811c9dc5u;  // FNV-1a
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x01000193u;
  return hash;
}

struct Owner {
  std::uint32_t machine;
  pid_t process;
  std::uint64_t start;
};

void append_number(std::string& text, std::uint64_t number) {
  char digits[16];
  text.append(digits, std::to_chars(std::begin(digits), std::end(digits), number, kBase).ptr);
}

// The part of a temporary name that a process' files share.
struct OwnPrefix {
  OwnPrefix() : process(::getpid()), text("/") {
    text += kPrefix;
    for (const std::uint64_t number :
         {std::uint64_t{machine()}, static_cast<std::uint64_t>(process), start_of(process)}) {
      append_number(text, number);
      text += '-';
    }
  }

  pid_t process;
  std::string text;
};

// Leaked, for records may be written while the process exits. Not a guarded local static: a child that was forked while
// another thread was inside would wait for it for ever.
std::atomic<const OwnPrefix*> own_prefix{nullptr};

const OwnPrefix& prefix_of_this_process() {
  const OwnPrefix* known = own_prefix.load(std::memory_order_acquire);
  if (known != nullptr && known->process == ::getpid()) return *known;
  // The first file, or the first after a fork: the child is another process. What the parent knew may be in use.
  auto fresh = std::make_unique<const OwnPrefix>();
  if (own_prefix.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *known;  // of a thread that was here at the same time
}

std::string temporary_path(const std::string& folder) {
  static std::atomic<std::uint64_t> count{0};
  const OwnPrefix& own = prefix_of_this_process();
  std::string path;
  path.reserve(folder.size() + own.text.size() + 32);
  path += folder;
  path += own.text;
  append_number(path, count.fetch_add(1, std::memory_order_relaxed));
  return path;
}

// Takes a number and the separator after it; the last one has none.
template <class Integer>
bool take_number(std::string_view& text, Integer& value) noexcept {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, kBase);
  if (error != std::errc() || (stop != end && *stop != '-')) return false;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()) + (stop != end ? 1 : 0));
  return true;
}

std::optional<Owner> owner_of(std::string_view name) noexcept {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  Owner owner{};
  std::uint64_t count = 0;
  if (!take_number(name, owner.machine) || !take_number(name, owner.process) || !take_number(name, owner.start) ||
      !take_number(name, count) || !name.empty() || owner.process <= 0) {
    return std::nullopt;
  }
  return owner;
}

bool is_gone(const Owner& owner) {
  if (owner.machine != machine()) return false;
  if (::kill(owner.process, 0) != 0 && errno == ESRCH) return true;
  const std::uint64_t start = start_of(owner.process);
  return start != 0 && owner.start != 0 && start != owner.start;
}

// What to do about a fault; empty where only its own words help.
std::string_view advice_for(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return ". Free some space there, or set DUMPER_DIR to a folder that has it";
    case EACCES:
    case EPERM:
    case EROFS:
      return ". Set DUMPER_DIR to a folder where this user may write";
    case EMFILE:
    case ENFILE:
      return ". Raise the number of open files (ulimit -n), or close some";
    case EFBIG:
      return ". Raise the size that a file may have (ulimit -f)";
    case ENOTDIR:
    case ELOOP:
      return ". A part of the path is no folder; set DUMPER_DIR to one";
    case ENAMETOOLONG:
      return ". Set DUMPER_DIR to a shorter path";
    default:
      return {};
  }
}

bool means_unsupported(int result) {
  return result == -EINVAL || result == -ENOSYS || result == -EOPNOTSUPP;
}

}  // namespace

AtomicFile::AtomicFile(std::string folder, FileSystem& files)
    : folder_(folder.empty() ? std::string(1, '.') : std::move(folder)),
      files_(files),
      limit_bytes_(files.file_size_limit()) {
  int result = -EEXIST;
  for (int attempt = 0; attempt < 100 && result == -EEXIST; ++attempt) {
    temporary_ = temporary_path(folder_);
    result = files_.create(temporary_.c_str());
    if (result != -ENOENT) continue;
    const int error = make_folders(files_, folder_.c_str());
    if (error != 0) {
      temporary_.clear();
      fail("the folder could not be created", error);
    }
    result = files_.create(temporary_.c_str());
  }
  if (result < 0) {
    temporary_.clear();
    fail("no file could be created in the folder", -result);
  }
  descriptor_ = result;
}

AtomicFile::~AtomicFile() {
  close_descriptor();
  if (!temporary_.empty()) files_.unlink(temporary_.c_str());
}

int AtomicFile::write(const void* data, std::size_t size) noexcept {
  const auto* bytes = static_cast<const char*>(data);
  if (error_ == 0 && size > limit_bytes_ - std::min(limit_bytes_, size_bytes_)) error_ = EFBIG;
  while (error_ == 0 && size > 0) {
    const ssize_t written = files_.write(descriptor_, bytes, std::min(size, kMaxWriteBytes));
    if (written <= 0) {
      error_ = written == 0 ? EIO : static_cast<int>(-written);
      break;
    }
    bytes += written;
    size -= static_cast<std::size_t>(written);
    size_bytes_ += static_cast<std::uint64_t>(written);
  }
  return error_;
}

void AtomicFile::close_descriptor() noexcept {
  if (descriptor_ < 0) return;
  const int result = files_.close(descriptor_);
  descriptor_ = -1;
  if (error_ == 0 && result < 0) error_ = -result;
}

bool AtomicFile::publish(std::string_view name) {
  if (temporary_.empty()) throw LogicError("this file was published already");
  close_descriptor();
  if (error_ != 0) fail(formatted("'{}' could not be written", name), error_);
  std::string path;
  path.reserve(folder_.size() + 1 + name.size());
  path = folder_;
  path += '/';
  path += name;
  int result = files_.rename_no_replace(temporary_.c_str(), path.c_str());
  if (result == 0) {
    temporary_.clear();
    return true;
  }
  if (means_unsupported(result)) {
    result = files_.link(temporary_.c_str(), path.c_str());
    // The destructor removes the temporary name; a reader never sees less than the whole file under the final one.
    if (result == 0) {
      files_.unlink(temporary_.c_str());
      temporary_.clear();
      return true;
    }
  }
  if (result == -EEXIST) return false;
  fail(formatted("'{}' could not be given its name", name), -result);
}

void AtomicFile::fail(std::string_view what, int error) const {
  throw IoError(formatted("folder '{}': {} ({} bytes so far): {}{}", folder_, what, size_bytes_,
                          base::errno_text(error), advice_for(error)),
                error);
}

bool is_temporary_name(std::string_view name) noexcept {
  return owner_of(name).has_value();
}

std::size_t remove_stale_temporaries(const std::string& folder, FileSystem& files) noexcept {
  const base::NoCancellation until_removed;
  std::size_t removed = 0;
  try {
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::optional<Owner> owner = owner_of(entry->path().filename().native());
      if (owner && is_gone(*owner) && files.unlink(entry->path().c_str()) == 0) ++removed;
    }
  } catch (...) {
    // Out of memory: the rest stays for the next start.
  }
  return removed;
}

}  // namespace dbg::dumping
