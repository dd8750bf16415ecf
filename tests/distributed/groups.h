// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What tests of groups share: options of a gloo pair, a backend that somebody else made, worlds of threads.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"

namespace dbg::test {

/// A gloo pair, with a timeout that no sound test reaches.
inline GroupOptions gloo_pair(const std::string& name) {
  GroupOptions options;
  options.group_name = name;
  options.device_backend = "gloo";
  options.timeout = std::chrono::milliseconds(20000);
  return options;
}

/// A gloo pair of this rank alone.
inline std::shared_ptr<GroupCoordinator> lone_group(const std::string& name, bool with_labels = true,
                                                    bool check = false) {
  GroupOptions options = gloo_pair(name);
  options.with_labels = with_labels;
  options.check = check;
  return GroupCoordinator::create(World::for_threads(1).front(), {{0}}, options);
}

/// What `create` for a rank alone complains of.
inline std::string complaint_of(const World& world, const std::vector<std::vector<int>>& lists,
                                const GroupOptions& options) {
  try {
    GroupCoordinator::create(world, lists, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(none)";
}

/// A backend as somebody else would make it: without a name, without a label.
inline c10::intrusive_ptr<c10d::ProcessGroupGloo> somebodys_gloo(int rank, int size,
                                                                 const c10::intrusive_ptr<c10d::Store>& store) {
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(20000));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

/// Reduces ones over the backend's members.
inline void expect_works(c10d::Backend& backend) {
  std::vector<at::Tensor> tensors{at::ones({2})};
  backend.allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0][0].item<float>(), static_cast<float>(backend.getSize()));
}

}  // namespace dbg::test
