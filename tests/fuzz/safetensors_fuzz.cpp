// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever a safetensors file holds: tensors that cover it exactly, or an IoError.
#include "dbg/safetensors.h"

#include <cstddef>
#include <cstdint>

#include "dbg/error.h"
#include "fuzz/fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const dbg::fuzz::MemoryFile memory(data, size);
    const auto file = dbg::SafetensorsFile::open(memory.path());
    std::uint64_t covered = 0;
    for (const auto& info : file.tensors()) {
      covered += info.size_bytes;
      dbg::fuzz::demand(file.contains(info.name), "a tensor that is not found by its name");
      if (info.dtype == at::ScalarType::Undefined) continue;
      const at::Tensor tensor = file.tensor(info.name);
      dbg::fuzz::demand(tensor.nbytes() == info.size_bytes, "a tensor of another size than its bytes");
      dbg::fuzz::touch(tensor);
    }
    dbg::fuzz::demand(covered <= size, "more tensor bytes than the file has");
  } catch (const dbg::IoError&) {
  }
  return 0;
}
