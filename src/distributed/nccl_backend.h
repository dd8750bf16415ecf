// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The NCCL backend. One of two sources of this interface is compiled (nccl_backend.cpp, no_nccl_backend.cpp).
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dbg/backend_factory.h"

namespace dbg::distributed {

/// Why a group can't use NCCL here: built without it, or no GPU. Empty when it can.
std::string why_no_nccl();

/// `kind`: `nccl`, `nccl2` or `nccl-legacy`. Throws: ConfigError with `why_no_nccl()`; ConfigError for `nccl2` of a
/// torch that has none.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const std::string& kind, const BackendRequest& request,
                                                    bool with_labels);

/// The communicator name in a backend's options, for reports; empty when there is none or it is no NCCL backend.
std::string nccl_communicator_name(c10d::Backend& backend);

}  // namespace dbg::distributed
