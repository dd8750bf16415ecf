// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Bounded reading of files and memory.
#include "codec/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::codec {
std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\'' || c == '\\') {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  if (text.size() > max_bytes) out += "...";
  return out;
}

ByteSource::ByteSource(std::string label, int descriptor, const unsigned char* memory, std::uint64_t size)
    : label_(std::move(label)), descriptor_(descriptor), memory_(memory), size_(size) {}

ByteSource::ByteSource(ByteSource&& other) noexcept
    : label_(std::move(other.label_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      memory_(std::exchange(other.memory_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

ByteSource::~ByteSource() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ByteSource ByteSource::file(std::string kind, std::string path) {
  std::string label = formatted("{} '{}'", kind, path);
  // O_NONBLOCK: opening a FIFO would wait for its writer otherwise. It means nothing for a regular file.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int code = errno;
    throw IoError(formatted("{}: can't be opened: {}", label, base::errno_text(code)), code);
  }
  ByteSource source(std::move(label), descriptor, nullptr, 0);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int code = errno;
    throw IoError(formatted("{}: can't be examined: {}", source.label_, base::errno_text(code)), code);
  }
  if (!S_ISREG(status.st_mode)) throw IoError(formatted("{}: is not a regular file", source.label_));
  source.size_ = static_cast<std::uint64_t>(status.st_size);
  return source;
}

ByteSource ByteSource::memory(std::string kind, const void* data, std::size_t size) {
  return {formatted("{} of {} bytes in memory", kind, size), -1, static_cast<const unsigned char*>(data), size};
}

void ByteSource::read(std::uint64_t offset, void* to, std::size_t count) const {
  if (offset > size_ || count > size_ - offset) {
    fail(offset, formatted("{} bytes are needed here and {} are left", count, size_ - std::min(offset, size_)));
  }
  if (count == 0) return;
  if (descriptor_ < 0) {
    std::memcpy(to, memory_ + offset, count);
    return;
  }
  auto* next = static_cast<unsigned char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(descriptor_, next, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int code = errno;
      throw IoError(formatted("{}, byte {}: can't be read: {}", label_, offset, base::errno_text(code)), code);
    }
    if (got == 0) fail(offset, "the file ends here now: it was cut while being read");
    next += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

void ByteSource::fail(std::uint64_t offset, std::string_view cause) const {
  throw IoError(formatted("{}, byte {}: {}", label_, offset, cause));
}

}  // namespace dbg::codec
