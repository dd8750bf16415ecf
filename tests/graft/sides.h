// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Both sides of a graft as threads of one process: a Dumper and a Grafter a side, which its ranks share.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "dbg/dumper.h"
#include "dbg/grafter.h"
#include "dbg/participant.h"
#include "support/free_port.h"
#include "support/log_capture.h"
#include "support/rank_threads.h"

namespace dbg::test {

/// A configuration that both sides share; names that begin with `x` flow to the target, with `y` back.
inline GraftConfig graft_config(int baseline, int target) {
  GraftConfig config;
  config.b2t_filter = "name.startswith('x')";
  config.t2b_filter = "name.startswith('y')";
  config.master_address = "127.0.0.1";
  config.master_port = free_port();
  config.baseline_world_size = baseline;
  config.target_world_size = target;
  config.timeout = std::chrono::seconds(30);
  return config;
}

/// A Dumper that writes nothing.
inline DumperConfig silent_dumper() {
  DumperConfig config;
  config.enable = true;
  config.enable_output_file = false;
  config.enable_output_console = false;
  return config;
}

/// One rank of one side, inside its thread.
struct SideRank {
  bool is_baseline = false;
  int rank = 0;
  Dumper& dumper;
  Grafter& grafter;

  GraftCounters counters() const { return grafter.state().counters; }
};

/// Runs `body` on a thread for each rank of both sides, and leaves the group when all are through.
/// `adapt`: changes the configuration of one side.
inline void run_sides(const GraftConfig& common, const std::function<void(SideRank&)>& body,
                      const std::function<void(GraftConfig&)>& adapt = {}) {
  struct Side {
    Side(GraftConfig config) : dumper(silent_dumper()), grafter(std::move(config)) {
      dumper.set_interceptor(grafter.interceptor());
    }
    Dumper dumper;
    Grafter grafter;
  };
  const auto make_side = [&](GraftRole role) {
    GraftConfig config = common;
    config.role = role;
    if (adapt) adapt(config);
    return std::make_unique<Side>(std::move(config));
  };
  const auto baseline = make_side(GraftRole::baseline);
  const auto target = make_side(GraftRole::target);
  run_ranks_as_threads(common.baseline_world_size + common.target_world_size, [&](int all_rank) {
    const bool is_baseline = all_rank < common.baseline_world_size;
    const int size = is_baseline ? common.baseline_world_size : common.target_world_size;
    Side& side = is_baseline ? *baseline : *target;
    SideRank rank{is_baseline, is_baseline ? all_rank : all_rank - common.baseline_world_size, side.dumper,
                  side.grafter};
    const ParticipantScope bound(std::make_shared<const Participant>(rank.rank, size, rank.rank));
    body(rank);
  });
}

/// Runs each test on both wires: the parameter is true for the Python twin's.
class BothWiresTest : public testing::TestWithParam<bool> {
 protected:
  GraftConfig config(int baseline, int target, const std::string& transform = "") const {
    GraftConfig made = graft_config(baseline, target);
    made.plain_wire = GetParam();
    made.transform = transform;
    return made;
  }

  LogCapture log_;
};

/// Removes a registered transform at the end of a test.
class ScopedTransform {
 public:
  ScopedTransform(const std::string& name, GraftTransform transform)
      : handle_(register_graft_transform(name, std::move(transform))) {}
  ~ScopedTransform() { handle_.remove(); }
  ScopedTransform(const ScopedTransform&) = delete;
  ScopedTransform& operator=(const ScopedTransform&) = delete;

 private:
  GraftTransformHandle handle_;
};

/// Whether two tensors hold the same bits, NaN included.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         at::equal(a.reshape({-1}).contiguous().view(at::kByte), b.reshape({-1}).contiguous().view(at::kByte));
}

}  // namespace dbg::test
