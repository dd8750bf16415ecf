// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The stub of nccl_calls.h, compiled when the build has no NCCL.
#include "broadcast/nccl_calls.h"
#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

[[noreturn]] void refuse_without_nccl() {
  throw ConfigError(
      "the transport nccl was asked for, and dbg was built without NCCL: take gloo, or build with DBG_WITH_NCCL=ON.");
}

}  // namespace

std::string make_nccl_id() {
  refuse_without_nccl();
}

std::shared_ptr<NcclCalls> make_nccl_calls(const std::string&, int, int, std::chrono::milliseconds,
                                           std::shared_ptr<distributed::AbortSignal>) {
  refuse_without_nccl();
}

}  // namespace dbg::broadcast
