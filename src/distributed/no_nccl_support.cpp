// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The stub of nccl_support.h, compiled when the build has no NCCL.
#include "distributed/nccl_support.h"

namespace dbg::distributed {

bool nccl_available() noexcept {
  return false;
}

std::string nccl_version_text() {
  return "built without NCCL";
}

}  // namespace dbg::distributed
