// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One rank of graft_bench.py: grafts between two sides, or the gather of as many bytes by the bare gloo backend. Prints
// the median milliseconds of a call as JSON, by size.
//
//     DUMPER_GRAFTER_*=.. RANK=.. WORLD_SIZE=.. graft_bench graft BYTES:CALLS ...
//     RANK=.. WORLD_SIZE=.. MASTER_ADDR=.. MASTER_PORT=.. graft_bench gather BYTES:CALLS ...
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "dbg/grafter.h"
#include "dbg/runtime.h"
#include "dbg/world.h"

namespace {

constexpr int kWarmUps = 2;

struct Size {
  std::int64_t bytes = 0;
  int calls = 0;
};

Size parse(const std::string& word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string::npos) throw std::invalid_argument("not BYTES:CALLS: " + word);
  return {std::stoll(word.substr(0, colon)), std::stoi(word.substr(colon + 1))};
}

double median_milliseconds(int calls, const std::function<void()>& call) {
  for (int i = 0; i < kWarmUps; ++i) call();
  std::vector<double> took;
  for (int i = 0; i < calls; ++i) {
    const auto began = std::chrono::steady_clock::now();
    call();
    took.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  return *middle;
}

double graft(const Size& size) {
  const at::Tensor tensor = at::rand({size.bytes / 4});
  return median_milliseconds(size.calls, [&] { dbg::dump("x", tensor); });
}

double gather(c10d::ProcessGroupGloo& backend, const Size& size) {
  std::vector<at::Tensor> input{at::rand({size.bytes / 4})};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < backend.getSize(); ++i) outputs[0].push_back(at::empty_like(input[0]));
  return median_milliseconds(size.calls, [&] { backend.allgather(outputs, input)->wait(); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.empty()) throw std::invalid_argument("graft_bench graft|gather BYTES:CALLS ...");
    std::function<double(const Size&)> run = graft;
    if (words[0] == "gather") {
      const dbg::World world = dbg::World::from_env();
      const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
      options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface("lo")};
      const auto backend =
          c10::make_intrusive<c10d::ProcessGroupGloo>(world.store(), world.rank(), world.world_size(), options);
      run = [world, backend](const Size& size) { return gather(*backend, size); };
    }
    std::string line = "{";
    for (std::size_t i = 1; i < words.size(); ++i) {
      const Size size = parse(words[i]);
      line += (i > 1 ? ", \"" : "\"") + std::to_string(size.bytes) + "\": " + std::to_string(run(size));
    }
    if (const auto grafter = dbg::grafter_of(dbg::Dumper::global())) {
      const dbg::GraftState state = grafter->state();
      if (state.phase != dbg::GraftPhase::grafting || state.counters.failed + state.counters.empty > 0) {
        throw std::runtime_error("not all was grafted: " + state.cause);
      }
    }
    std::cout << line << "}" << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
