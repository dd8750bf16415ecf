// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// nccl2_backend.h where torch has that class.
#include "distributed/nccl2_backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>

#include "distributed/nccl_options.h"

namespace dbg::distributed {
namespace {

using c10d::nccl2::ProcessGroupNCCL;

// Python's rule, but for a thread that has chosen a GPU of its own.
c10::Device device_for(const BackendRequest& request) {
  const c10::impl::VirtualGuardImpl gpus(c10::DeviceType::CUDA);
  const c10::Device current = gpus.getDevice();
  if (current.index() != 0) return current;
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(request.local_rank % gpus.deviceCount())};
}

}  // namespace

bool nccl_means_nccl2() noexcept {
  const char* value = std::getenv("TORCH_DIST_USE_NCCL2");
  return value == nullptr || std::string_view(value) != "0";
}

c10::intrusive_ptr<c10d::Backend> make_nccl2_backend(const BackendRequest& request, bool with_labels) {
  auto backend = c10::make_intrusive<ProcessGroupNCCL>(request.store, request.rank, request.size,
                                                       make_nccl_options(request, with_labels));
  backend->setBoundDeviceId(device_for(request));  // which makes the communicator
  return backend;
}

std::string nccl2_communicator_name(c10d::Backend& backend) {
  auto* nccl2 = dynamic_cast<ProcessGroupNCCL*>(&backend);
  if (nccl2 == nullptr) return {};
  const auto options = c10::dynamic_intrusive_pointer_cast<ProcessGroupNCCL::Options>(nccl2->getBackendOptions());
  return options ? communicator_name_of(*options) : std::string();
}

}  // namespace dbg::distributed
