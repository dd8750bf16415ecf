// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets of the codec share: a file made of the input, and looking at every part of a value.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace dbg::fuzz {

/// Ends the process, which is how a fuzz target reports.
inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

/// The bytes as a file that lives in memory.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : descriptor_(::memfd_create("fuzz", 0)) {
    demand(descriptor_ >= 0, "no memory file");
    demand(::write(descriptor_, data, size) == static_cast<ssize_t>(size), "short write");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// Reads the first and last element that the tensor says it has: the sanitizer tells whether they are there.
inline unsigned touch(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.numel() == 0) return 0;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto width = static_cast<std::int64_t>(tensor.element_size());
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  return bytes[0] + bytes[last * width + width - 1];
}

inline unsigned touch(const c10::IValue& value) {
  if (value.isTensor()) return touch(value.toTensor());
  unsigned sum = 0;
  if (value.isTuple()) {
    for (const auto& item : value.toTupleRef().elements()) sum += touch(item);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) sum += touch(item);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) sum += touch(entry.key()) + touch(entry.value());
  } else if (value.isString()) {
    sum += static_cast<unsigned>(value.toStringRef().size());
  }
  return sum;
}

}  // namespace dbg::fuzz
