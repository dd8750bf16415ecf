// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A C++ rank for group_interop_test.py: makes or joins the groups it is told to, uses them, and prints what it saw as
// JSON.
#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "dbg/world.h"

namespace {

using nlohmann::json;
using std::chrono::milliseconds;

dbg::GroupOptions options_named(const std::string& name) {
  dbg::GroupOptions options;
  options.group_name = name;
  options.device_backend = "gloo";
  options.timeout = milliseconds(30000);
  // Python puts its wrapper around every group then.
  const char* detail = std::getenv("TORCH_DISTRIBUTED_DEBUG");
  options.check = detail != nullptr && std::string(detail) == "DETAIL";
  return options;
}

// What every rank of such a group does, in this order; group_interop_test.py has the other half.
json use(dbg::GroupCoordinator& group) {
  json seen;
  at::Tensor sum = at::full({4}, group.rank_in_group() + 1.0);
  group.all_reduce(sum);
  seen["sum"] = sum[0].item<double>();
  group.barrier();
  at::Tensor from_last = at::full({2}, group.is_last_rank() ? 7.0 : 0.0);
  group.broadcast(from_last, group.world_size() - 1);
  seen["broadcast"] = from_last[0].item<double>();
  at::Tensor parts = group.all_gather(at::full({1}, 10.0 + group.rank_in_group()), 0);
  seen["parts"] = std::vector<double>(parts.data_ptr<float>(), parts.data_ptr<float>() + parts.numel());
  std::vector<std::string> words;
  for (const c10::IValue& one : group.all_gather_object("from " + std::to_string(group.rank_in_group()))) {
    words.push_back(one.toStringRef());
  }
  seen["objects"] = words;
  seen["label"] = group.cpu_group()->getGroupDesc();
  return seen;
}

json run(const std::vector<std::string>& words) {
  const dbg::World world = dbg::World::from_env(milliseconds(30000));
  const std::string& mode = words.at(0);
  json seen{{"prefix", world.key_prefix()}};
  if (mode == "world" || mode == "subgroup") {
    const auto all = dbg::GroupCoordinator::join_python(world, {}, options_named("all"));
    seen["all"] = use(*all);
    if (mode == "subgroup") {
      dbg::PythonGroup part{dbg::PythonGroup::Kind::subgroup, words.at(1), {0, 1}};
      if (const auto group = dbg::GroupCoordinator::join_python(world, part, options_named("part"))) {
        seen["part"] = use(*group);
      }
    }
  } else if (mode == "custom") {
    const auto group = dbg::GroupCoordinator::join_python(world, {dbg::PythonGroup::Kind::custom, words.at(1), {}},
                                                          options_named("graft"));
    seen["custom"] = use(*group);
  } else if (mode == "own") {
    std::vector<int> ranks;
    for (int rank = 0; rank < world.world_size(); ++rank) ranks.push_back(rank);
    const auto group = dbg::GroupCoordinator::create(world, {ranks}, options_named("tp"));
    seen["own"] = use(*group);
    seen["describe"] = group->describe();
  } else if (mode == "hang") {
    // The last rank never joins the second all_reduce. Then each writes its recorder's dump.
    std::vector<int> ranks;
    for (int rank = 0; rank < world.world_size(); ++rank) ranks.push_back(rank);
    dbg::GroupOptions options = options_named("tp");
    options.timeout = milliseconds(30000);
    const auto group = dbg::GroupCoordinator::create(world, {ranks}, options);
    const auto backend = group->cpu_group();
    at::Tensor ones = at::ones({4});
    std::vector<at::Tensor> tensors{ones};
    backend->getBackend(c10::DeviceType::CPU)->allreduce(tensors)->wait();
    if (!group->is_last_rank()) {
      c10d::AllreduceOptions call;
      call.timeout = milliseconds(3000);
      try {
        backend->getBackend(c10::DeviceType::CPU)->allreduce(tensors, call)->wait();
        seen["hang"] = "none";
      } catch (const std::exception&) {
        seen["hang"] = "timed out";
      }
    }
    std::ofstream file(words.at(1) + "/trace_" + std::to_string(world.rank()), std::ios::binary);
    file << c10d::dump_fr_trace(true, true, false);
    file.close();
    // Until all have written: who leaves cuts the others off.
    world.store()->set("written by " + std::to_string(world.rank()), std::vector<std::uint8_t>{1});
    for (const int rank : ranks) world.store()->wait({"written by " + std::to_string(rank)}, milliseconds(20000));
  } else {
    throw dbg::ConfigError("no such mode: " + mode);
  }
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::cout << run(std::vector<std::string>(argv + 1, argv + argc)).dump() << '\n' << std::flush;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
