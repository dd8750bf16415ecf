// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever a record file holds: a value or an IoError; and a value that was read can be written and read again, which
// must not fail.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codec/archive.h"
#include "codec/archive_reader.h"
#include "dbg/error.h"
#include "fuzz/fuzz_support.h"

namespace {

// The value, where there is one and all of it is there.
std::optional<c10::IValue> read_foreign(const std::uint8_t* data, std::size_t size) {
  dbg::codec::ReadLimits limits;
  limits.max_items = 20'000;
  limits.max_tensor_bytes = 1 << 20;
  std::vector<dbg::codec::Refusal> refusals;
  try {
    const dbg::fuzz::MemoryFile file(data, size);
    const c10::IValue value = dbg::codec::read_archive_file(file.path(), limits, &refusals);
    dbg::fuzz::touch(value);
    if (refusals.empty()) return value;
  } catch (const dbg::IoError&) {
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<c10::IValue> value = read_foreign(data, size);
  if (!value || dbg::codec::refusal_of(*value)) return 0;
  // What dbg wrote itself has no excuse: a throw from here on is a finding.
  const std::string written = dbg::codec::archive_bytes(*value);
  std::vector<dbg::codec::Refusal> refusals;
  const c10::IValue again = dbg::codec::read_archive_bytes(written.data(), written.size(), {}, &refusals);
  dbg::fuzz::touch(again);
  dbg::fuzz::demand(refusals.empty(), "what was written is not read back");
  dbg::fuzz::demand(dbg::codec::archive_bytes(again) == written, "what was written is read back as something else");
  return 0;
}
