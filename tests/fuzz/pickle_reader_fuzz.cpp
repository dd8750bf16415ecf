// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever a peer sends as a pickle: a value or an IoError.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/archive_reader.h"
#include "dbg/error.h"
#include "fuzz/fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dbg::codec::ReadLimits limits;
  limits.max_items = 20'000;
  limits.max_tensor_bytes = 1 << 20;
  std::vector<dbg::codec::Refusal> refusals;
  try {
    dbg::fuzz::touch(dbg::codec::read_pickle_bytes(data, size, limits, &refusals));
  } catch (const dbg::IoError&) {
  }
  for (const auto& refusal : refusals) dbg::fuzz::demand(!refusal.reason.empty(), "a refusal without a reason");
  return 0;
}
