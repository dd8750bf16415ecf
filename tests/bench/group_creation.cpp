// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One rank of groups_bench.py: how long the slowest member takes to make a group, both halves on gloo. Prints JSON on
// rank 0. Its Python peer does the same with two new_group().
//
//     RANK=.. WORLD_SIZE=.. MASTER_ADDR=.. MASTER_PORT=.. group_creation ROUNDS
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <numeric>
#include <vector>

#include "dbg/group_coordinator.h"
#include "dbg/world.h"

namespace {

std::vector<double> milliseconds_to_create(const dbg::World& world, int rounds) {
  std::vector<int> ranks(static_cast<std::size_t>(world.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  dbg::GroupOptions options;
  options.device_backend = "gloo";
  options.group_name = "all";
  const auto all = dbg::GroupCoordinator::create(world, {ranks}, options);
  std::vector<double> took;
  for (int round = 0; round < rounds; ++round) {
    all->barrier();
    options.group_name = "tp";
    const auto began = std::chrono::steady_clock::now();
    const auto group = dbg::GroupCoordinator::create(world, {ranks}, options);
    const auto elapsed = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began);
    at::Tensor slowest = at::full({1}, elapsed.count(), at::kDouble);
    all->all_reduce(slowest, dbg::ReduceOp::max);
    took.push_back(slowest.item<double>());
  }
  return took;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const dbg::World world = dbg::World::from_env();
    std::vector<double> took = milliseconds_to_create(world, argc > 1 ? std::max(1, std::atoi(argv[1])) : 20);
    const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
    std::nth_element(took.begin(), middle, took.end());
    if (world.rank() == 0) std::cout << "{\"create_ms\": " << *middle << "}" << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
