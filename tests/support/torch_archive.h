// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Looks into a record with torch's own archive reader, which knows nothing of dbg.
#pragma once

#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>

#include <string>
#include <tuple>

namespace dbg::test {

/// The bytes of the first tensor in a `.pt` file. Throws: c10::Error when torch can't read the archive.
inline std::string first_tensor_bytes(const std::string& path) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  const auto [data, size] = reader.getRecord("data/0");
  return {static_cast<const char*>(data.get()), size};
}

/// The bytes of a dense tensor in host memory.
inline std::string tensor_bytes(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace dbg::test
