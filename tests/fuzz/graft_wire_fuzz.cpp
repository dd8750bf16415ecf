// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whatever a peer of a graft sends: a payload of the Python twin's wire (first byte `p`), or a header of dbg's own
// (any other): a contribution, a header, or a refusal in words.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dbg/error.h"
#include "fuzz/fuzz_support.h"
#include "graft/frame.h"
#include "graft/payload_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using dbg::graft::ContributionState;
  if (size == 0) return 0;
  if (data[0] == 'p') {
    const auto made = dbg::graft::decode_payload(data + 1, size - 1, 1 << 20);
    if (made.state == ContributionState::value) {
      dbg::fuzz::touch(made.tensor);
      dbg::fuzz::touch(made.extras);
    } else {
      dbg::fuzz::demand(!made.reason.empty(), "a contribution without a tensor and a reason");
    }
    return 0;
  }
  std::array<std::byte, dbg::graft::kHeaderBytes> bytes{};
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  std::memcpy(bytes.data(), "DBGGRAFT", 8);
  try {
    const auto header = dbg::graft::read_header(bytes.data());
    std::array<std::byte, dbg::graft::kHeaderBytes> again;
    dbg::graft::write_header(header, again.data());
    const auto same = dbg::graft::read_header(again.data());
    dbg::fuzz::demand(same.tensor_bytes == header.tensor_bytes && same.sizes == header.sizes, "another header");
    static_cast<void>(dbg::graft::decide({header, same}, 1));
  } catch (const dbg::IoError&) {
  }
  return 0;
}
