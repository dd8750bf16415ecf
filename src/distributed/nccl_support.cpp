// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's side of nccl_support.h, compiled when the build found NCCL.
#include "distributed/nccl_support.h"

#include <nccl.h>

#include "base/formatted.h"

namespace dbg::distributed {
namespace {

std::string version_text(int code) {
  return formatted("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

}  // namespace

bool nccl_available() noexcept {
  return true;
}

std::string nccl_version_text() {
  // The library that is loaded may be newer than the header; the build refuses the other way round.
  int loaded = 0;
  const std::string built = version_text(NCCL_VERSION_CODE);
  if (ncclGetVersion(&loaded) != ncclSuccess)
    return formatted("NCCL that does not tell its version (built against {})", built);
  return formatted("NCCL {} (built against {})", version_text(loaded), built);
}

}  // namespace dbg::distributed
