// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The stub of nccl_backend.h, compiled when the build has no NCCL.
#include "dbg/error.h"
#include "distributed/nccl_backend.h"

namespace dbg::distributed {

std::string why_no_nccl() {
  return "dbg was built without NCCL";
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const std::string& kind, const BackendRequest& /*request*/,
                                                    bool /*with_labels*/) {
  throw ConfigError("the backend " + kind +
                    " was asked for, and dbg was built without NCCL: take gloo, or build with "
                    "DBG_WITH_NCCL=ON.");
}

std::string nccl_communicator_name(c10d::Backend& /*backend*/) {
  return {};
}

}  // namespace dbg::distributed
