// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The steps that all makers of a GroupCoordinator share.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "distributed/group_impl.h"

namespace dbg::distributed {

/// A group under construction.
struct BuildPlan {
  GroupCoordinator::Impl& impl;
  const GroupOptions& options;
  std::int64_t generation = 0;
  std::chrono::steady_clock::time_point deadline;
};

/// `asked`, or `otherwise` for 0. Throws: ConfigError below 0.
std::chrono::milliseconds timeout_or(std::chrono::milliseconds asked, std::chrono::milliseconds otherwise,
                                     const std::string& group_name);

/// Throws: CommError (forked) where this process is a child of the one that opened the world: the child would read the
/// answers that the store gives its parent.
void require_own_process(const World& world, const std::string& operation, const std::string& group_name);

/// Makes one half from the world's store and registers it. Throws: ConfigError, CommError; nothing is left in the
/// store.
std::shared_ptr<OwnedHalf> build_half(const BuildPlan& plan, const std::string& half, const std::string& kind);

}  // namespace dbg::distributed
