// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever a record file holds: a value or an IoError; and a value that was read can be written and read again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/archive.h"
#include "codec/archive_reader.h"
#include "dbg/error.h"
#include "fuzz/fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dbg::codec::ReadLimits limits;
  limits.max_items = 20'000;
  limits.max_tensor_bytes = 1 << 20;
  std::vector<dbg::codec::Refusal> refusals;
  try {
    const dbg::fuzz::MemoryFile file(data, size);
    const c10::IValue value = dbg::codec::read_archive_file(file.path(), limits, &refusals);
    dbg::fuzz::touch(value);
    if (refusals.empty() && !dbg::codec::refusal_of(value)) {
      const std::string again = dbg::codec::archive_bytes(value);
      limits.max_items *= 100;
      limits.max_tensor_bytes *= 100;
      dbg::fuzz::touch(dbg::codec::read_archive_bytes(again.data(), again.size(), limits, &refusals));
      dbg::fuzz::demand(refusals.empty(), "what was written is not read back");
    }
  } catch (const dbg::IoError&) {
  }
  return 0;
}
