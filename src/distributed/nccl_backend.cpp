// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's side of nccl_backend.h, compiled when the build found NCCL.
#include "distributed/nccl_backend.h"

#include <ATen/Context.h>

#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/nccl2_backend.h"
#include "distributed/nccl_options.h"
#include "distributed/nccl_support.h"

namespace dbg::distributed {

std::string why_no_nccl() {
  // Asks torch, which counts as none a GPU that its driver can't use.
  if (at::hasCUDA()) return {};
  return formatted("no GPU is visible to this process ({})", nccl_version_text());
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const std::string& kind, const BackendRequest& request,
                                                    bool with_labels) {
  if (const std::string why = why_no_nccl(); !why.empty()) {
    throw ConfigError(formatted("the backend {} was asked for, and {}: take gloo, or run where a GPU is.", kind, why));
  }
  if (kind == "nccl2" || (kind == "nccl" && nccl_means_nccl2())) return make_nccl2_backend(request, with_labels);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size,
                                                     make_nccl_options(request, with_labels));
}

std::string nccl_communicator_name(c10d::Backend& backend) {
  auto* nccl = dynamic_cast<c10d::ProcessGroupNCCL*>(&backend);
  return nccl != nullptr ? communicator_name_of(*nccl->getOptions()) : nccl2_communicator_name(backend);
}

}  // namespace dbg::distributed
