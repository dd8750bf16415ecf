// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The stub of nccl2_backend.h, compiled when torch has one NCCL class only.
#include "dbg/error.h"
#include "distributed/nccl2_backend.h"

namespace dbg::distributed {

bool nccl_means_nccl2() noexcept {
  return false;
}

c10::intrusive_ptr<c10d::Backend> make_nccl2_backend(const BackendRequest& /*request*/, bool /*with_labels*/) {
  throw ConfigError("the backend nccl2 was asked for, and this torch has one NCCL class: take nccl.");
}

std::string nccl2_communicator_name(c10d::Backend& /*backend*/) {
  return {};
}

}  // namespace dbg::distributed
