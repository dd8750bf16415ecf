// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One rank of the weight broadcast's benchmark; broadcast_bench.py starts one in each network namespace.
//
//     broadcast_bench WORKER ACTOR_NODES ROLLOUT_NODES MODE STORE INTERFACE MEGABYTES BUCKET_MEGABYTES ROUNDS WEIGHTS
//                     CARD_RATE
//
// WORKER: its number, actors first. NODES: `a,a,c`. MODE: `gloo` (gloo's own broadcast from actor 0 to all rollouts),
// `chain` (one sender), `striped` (all actors of actor 0's node send), `chain+allreduce`, `striped+allreduce` (the
// source is an all-reduce among all actors for each weight). CARD_RATE: bytes a second, for the prediction. The root
// prints a line of JSON with the seconds of each round, how many of the machine's cores were busy meanwhile, and the
// seconds of the source; every consumer checks every byte.
#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "base/formatted.h"
#include "dbg/group_coordinator.h"
#include "dbg/model_weights.h"
#include "dbg/weight_broadcaster.h"
#include "dbg/world.h"
#include "distributed/backends.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Setup {
  int worker = 0;
  std::vector<std::string> actors;
  std::vector<std::string> rollouts;
  std::string mode;
  std::string interface;
  std::int64_t bytes = 0;
  std::int64_t bucket_bytes = 0;
  int rounds = 1;
  int num_weights = 8;
  double card_rate = 0;
  c10::intrusive_ptr<c10d::Store> store;

  bool is_actor() const { return worker < static_cast<int>(actors.size()); }
  int index() const { return is_actor() ? worker : worker - static_cast<int>(actors.size()); }
};

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

at::Tensor values(std::int64_t bytes, int seed) {
  return (at::arange(bytes / 4, at::kInt) * 2654435 + seed * 40503).view(at::kFloat);
}

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Seconds that the cores of this machine have worked so far, all of them together, the kernel's own work included.
double worked_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;
  double ticks = 0;
  double value = 0;
  // user, nice, system, idle, iowait, irq, softirq
  for (int column = 0; column < 7 && file >> value; ++column) ticks += column == 3 || column == 4 ? 0 : value;
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct Round {
  double seconds = 0;
  double busy_cores = 0;
  double produced = 0;  // seconds of it that the source took
};

// Measures one round on the root.
class RoundTimer {
 public:
  Round end() const {
    const double seconds = seconds_since(began_);
    return {seconds, (worked_seconds() - worked_) / seconds, 0};
  }

 private:
  const double worked_ = worked_seconds();
  const Clock::time_point began_ = Clock::now();
};

void print_result(const std::vector<Round>& rounds, double predicted, const std::string& report) {
  const auto list = [&](double Round::*value) {
    std::string text;
    for (const Round& round : rounds) text += dbg::formatted("{}{:.6f}", text.empty() ? "" : ", ", round.*value);
    return text;
  };
  std::printf(
      "{\"seconds\": [%s], \"busy_cores\": [%s], \"produced\": [%s], \"predicted\": %.6f, \"report\": \"%s\"}\n",
      list(&Round::seconds).c_str(), list(&Round::busy_cores).c_str(), list(&Round::produced).c_str(), predicted,
      report.c_str());
  std::fflush(stdout);
}

// gloo's own broadcast, bucket by bucket, as a program without dbg would do it.
void run_gloo(const Setup& setup) {
  if (setup.is_actor() && setup.worker != 0) return;
  dbg::BackendRequest request;
  request.store = setup.store;
  request.rank = setup.is_actor() ? 0 : 1 + setup.index();
  request.size = 1 + static_cast<int>(setup.rollouts.size());
  for (int rank = 0; rank < request.size; ++rank) request.global_ranks.push_back(rank);
  request.group_name = request.group_desc = "bench";
  request.half = "cpu";
  request.timeout = std::chrono::minutes(5);
  request.interface = setup.interface;
  auto half = dbg::distributed::make_half("gloo", request, request.timeout, true);
  std::vector<Round> rounds;
  for (int round = 0; round < setup.rounds; ++round) {
    const at::Tensor sent = values(setup.bytes, round);
    at::Tensor all = request.rank == 0 ? sent.clone() : at::zeros_like(sent);
    half.backend->barrier()->wait();
    const RoundTimer timer;
    const at::Tensor bytes = all.view(at::kByte);
    for (std::int64_t at = 0; at < bytes.numel(); at += setup.bucket_bytes) {
      std::vector<at::Tensor> part{bytes.slice(0, at, std::min(bytes.numel(), at + setup.bucket_bytes))};
      half.backend->broadcast(part)->wait();
    }
    half.backend->barrier()->wait();
    rounds.push_back(timer.end());
    require(at::equal(all.view(at::kInt), sent.view(at::kInt)), "gloo's broadcast brought other bytes");
  }
  if (request.rank == 0) print_result(rounds, 0, "");
}

// All-reduces each weight among the actors before it hands it out.
class ReducingSource : public dbg::TensorListSource {
 public:
  ReducingSource(std::vector<dbg::NamedParameter> weights, dbg::GroupCoordinator* group, double& seconds)
      : dbg::TensorListSource(std::move(weights)), group_(group), seconds_(seconds) {}
  std::optional<dbg::Weight> next() override {
    auto weight = dbg::TensorListSource::next();
    if (group_ == nullptr || !weight) return weight;
    const auto began = Clock::now();
    weight->tensor = weight->tensor.clone();
    group_->all_reduce(weight->tensor, dbg::ReduceOp::max);
    seconds_ += seconds_since(began);
    return weight;
  }

 private:
  dbg::GroupCoordinator* group_;
  double& seconds_;
};

void run_dbg(const Setup& setup) {
  dbg::BroadcastOptions options;
  options.bucket_bytes = static_cast<std::uint64_t>(setup.bucket_bytes);
  options.chunk_bytes = 128 << 10;
  options.multi_sender = setup.mode.rfind("striped", 0) == 0;
  options.interface = setup.interface;
  options.node_id = setup.is_actor() ? setup.actors[static_cast<std::size_t>(setup.index())]
                                     : setup.rollouts[static_cast<std::size_t>(setup.index())];
  dbg::LinkRates rates;
  rates.card = setup.card_rate;
  for (const std::string& node : setup.rollouts) {  // each rank has a card of its own
    const auto consumers = static_cast<int>(std::count(setup.rollouts.begin(), setup.rollouts.end(), node));
    rates.cards_per_consumer_node = std::max(rates.cards_per_consumer_node, consumers);
  }
  rates.hop_seconds = 1e-3;
  rates.bucket_seconds = 2e-3;
  options.link_rates = rates;
  const dbg::BroadcastRole role{setup.is_actor() ? dbg::WorkerRole::actor : dbg::WorkerRole::rollout, setup.index(),
                                static_cast<int>(setup.actors.size()), static_cast<int>(setup.rollouts.size())};
  const auto broadcaster = dbg::WeightBroadcaster::create(setup.store, role, options);

  std::shared_ptr<dbg::GroupCoordinator> group;
  if (setup.is_actor() && setup.mode.find("+allreduce") != setup.mode.npos) {
    dbg::WorldOptions world_options;
    world_options.interface = setup.interface;
    world_options.key_prefix = "actors";
    const auto world =
        dbg::World::create(setup.store, setup.worker, static_cast<int>(setup.actors.size()), world_options);
    std::vector<int> all;
    for (int rank = 0; rank < world.world_size(); ++rank) all.push_back(rank);
    group = dbg::GroupCoordinator::create(world, {all}, {.group_name = "dp", .device_backend = "gloo"});
  }

  const std::int64_t each = setup.bytes / setup.num_weights / 4 * 4;
  std::vector<Round> rounds;
  double predicted = 0;
  std::string report;
  for (int round = -1; round < setup.rounds; ++round) {  // the first makes the connections
    std::vector<dbg::NamedParameter> weights;
    for (int i = 0; i < setup.num_weights; ++i) {
      const at::Tensor tensor =
          group ? at::full({each / 4}, 1.0 * i + round, at::kFloat) : values(each, 100 * round + i);
      weights.push_back({dbg::formatted("w{}", i), tensor});
    }
    if (setup.is_actor()) {
      double reduced = 0;
      ReducingSource source(weights, group.get(), reduced);
      const RoundTimer timer;
      const auto result = broadcaster->send(source);
      if (round < 0) continue;
      rounds.push_back({result.seconds - result.begin_seconds, timer.end().busy_cores, reduced});
      predicted = result.predicted_seconds.value_or(0);
      report = dbg::formatted("begin {:.4f} produce {:.4f} pack {:.4f} wait {:.4f} wire {:.4f}", result.begin_seconds,
                              result.produce_seconds, result.pack_seconds, result.wait_seconds, result.wire_seconds);
      continue;
    }
    dbg::TensorMapSink sink;
    broadcaster->receive(sink);
    const bool reduces = setup.mode.find("+allreduce") != setup.mode.npos;
    for (int i = 0; i < setup.num_weights; ++i) {
      const at::Tensor expected =
          reduces ? at::full({each / 4}, 1.0 * i + round, at::kFloat) : values(each, 100 * round + i);
      require(at::equal(sink.tensors().at(dbg::formatted("w{}", i)).view(at::kInt), expected.view(at::kInt)),
              "a consumer has other bytes");
    }
  }
  if (group) group->close();
  if (setup.worker == 0) print_result(rounds, predicted, report);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 12) {
    std::fprintf(stderr, "see the first lines of broadcast_bench.cpp\n");
    return 2;
  }
  try {
    Setup setup;
    setup.worker = std::atoi(argv[1]);
    setup.actors = words_of(argv[2]);
    setup.rollouts = words_of(argv[3]);
    setup.mode = argv[4];
    const int size = static_cast<int>(setup.actors.size() + setup.rollouts.size());
    setup.store = c10::make_intrusive<c10d::FileStore>(argv[5], size);
    setup.interface = argv[6];
    setup.bytes = static_cast<std::int64_t>(std::atof(argv[7]) * (1 << 20));
    setup.bucket_bytes = static_cast<std::int64_t>(std::atof(argv[8]) * (1 << 20));
    setup.rounds = std::atoi(argv[9]);
    setup.num_weights = std::atoi(argv[10]);
    setup.card_rate = std::atof(argv[11]);
    if (setup.mode == "gloo") {
      run_gloo(setup);
    } else {
      run_dbg(setup);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "worker %s: %s\n", argv[1], error.what());
    return 1;
  }
}
