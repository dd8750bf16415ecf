// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Both sides of a graft as threads of one process: a Dumper and a Grafter a side, which its ranks share.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <system_error>

#include "dbg/dumper.h"
#include "dbg/grafter.h"
#include "dbg/participant.h"
#include "support/rank_threads.h"

namespace dbg::test {

/// A port that nobody uses at the moment.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "a free port");
  }
  ::close(socket);
  return ntohs(address.sin_port);
}

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
