// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The options of an NCCL backend, filled so that NCCL's own tools see the label. Works without a GPU.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dbg/backend_factory.h"

namespace dbg::distributed {

/// The caller's options (a copy of `request.options`, when it is of NCCL) or fresh ones, with group_name, group_desc,
/// ranks, timeout and the communicator's name (`tp:device`) set. A communicator name of the caller's own stays. Throws:
/// ConfigError when `request.options` are of another backend.
c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> make_nccl_options(const BackendRequest& request, bool with_labels);

/// Whether this NCCL knows names of communicators (2.27.3 and newer).
bool nccl_names_communicators() noexcept;

/// The name in these options; empty when there is none.
std::string communicator_name_of(const c10d::ProcessGroupNCCL::Options& options);

/// A copy that lives as long as the process: NCCL keeps the raw pointer. Equal texts share one.
const char* interned_text(const std::string& text);

}  // namespace dbg::distributed
