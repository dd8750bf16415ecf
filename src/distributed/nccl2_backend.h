// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// torch 2.15's second NCCL class, which Python calls nccl2 and takes for nccl. One of two sources of this interface is
// compiled (nccl2_backend.cpp, no_nccl2_backend.cpp).
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dbg/backend_factory.h"

namespace dbg::distributed {

/// Whether `nccl` means this class: where torch has it, unless TORCH_DIST_USE_NCCL2=0 says otherwise, as in Python.
bool nccl_means_nccl2() noexcept;

/// Throws: ConfigError where torch has none; what torch throws.
c10::intrusive_ptr<c10d::Backend> make_nccl2_backend(const BackendRequest& request, bool with_labels);

/// The communicator name in the options of a backend of this class; empty for any other.
std::string nccl2_communicator_name(c10d::Backend& backend);

}  // namespace dbg::distributed
