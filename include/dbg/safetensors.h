// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reading a safetensors file as named tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// What the header of a safetensors file says about one tensor.
struct SafetensorsInfo {
  std::string name;
  /// The file's word for the dtype, such as "BF16".
  std::string file_dtype;
  /// Undefined where this torch has no such dtype (F6_E2M3, F6_E3M2); such a tensor can't be read.
  at::ScalarType dtype = at::ScalarType::Undefined;
  /// As the tensor will have it. F4 is float4_e2m1fn_x2, two values an element: its last dimension is half the file's.
  std::vector<std::int64_t> shape;
  /// Where the tensor's bytes begin, from the start of the file.
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// An open safetensors file.
///
/// Format: 8 bytes little-endian header length, a JSON header `{"name": {"dtype", "shape", "data_offsets": [begin,
/// end]}, "__metadata__": {text: text}}`, then the tensors' bytes, little-endian and row-major, side by side without
/// gap or overlap to the end of the file.
/// Source: the safetensors format description; the reference implementation refuses the same files.
/// Threads: reading is safe from any thread.
/// Copies share the open file.
class DBG_API SafetensorsFile {
 public:
  /// Opens `path` and checks its header whole: lengths, text, dtypes, shapes against sizes, coverage, double names.
  /// Throws: IoError that names file, byte offset and cause. Never: allocates by a length that the file does not have.
  static SafetensorsFile open(const std::string& path);

  /// What the file holds, in the order of its bytes: reading in this order reads the file once, forward.
  const std::vector<SafetensorsInfo>& tensors() const noexcept;

  /// The names, in the order of `tensors()`.
  std::vector<std::string> names() const;

  bool contains(std::string_view name) const noexcept;

  /// Throws: ConfigError when the file has no such tensor.
  const SafetensorsInfo& info(std::string_view name) const;

  /// Reads one tensor into memory of its own, on the CPU; it does not depend on the file afterwards.
  /// Throws: ConfigError when the file has no such tensor, IoError when it can't be read.
  at::Tensor tensor(std::string_view name) const;

  /// The pairs under `__metadata__`.
  const std::map<std::string, std::string>& metadata() const noexcept;

 private:
  struct Impl;
  explicit SafetensorsFile(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace dbg
