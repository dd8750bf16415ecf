// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a group adds to its backend: an all_reduce of 1 KiB between two ranks, and the backend's own beside it.
//
//     group_bench --benchmark_repetitions=15 --benchmark_enable_random_interleaving=true
//                 --benchmark_report_aggregates_only=true
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "distributed/collectives.h"

namespace {

using dbg::distributed::GroupHalf;

constexpr int kRanks = 2;

// A store for each run of a benchmark: its two threads take it in turns.
c10::intrusive_ptr<c10d::Store> store_of_this_run() {
  static std::mutex mutex;
  static int asked = 0;
  static c10::intrusive_ptr<c10d::Store> store;
  const std::lock_guard lock(mutex);
  if (asked++ % kRanks == 0) store = c10::make_intrusive<c10d::HashStore>();
  return store;
}

std::unique_ptr<GroupHalf> make_half(int rank) {
  auto half = std::make_unique<GroupHalf>();
  half->name = "tp@0_1.g0";
  half->label = "tp:cpu";
  half->ranks = {0, 1};
  half->rank_in_group = rank;
  half->timeout = std::chrono::seconds(60);
  const auto options = c10d::ProcessGroupGloo::Options::create(half->timeout);
  options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface("lo")};
  const auto store = store_of_this_run();
  half->store = c10::make_intrusive<c10d::PrefixStore>("notes", store);
  half->backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, kRanks, options);
  return half;
}

void BM_RawAllReduce1KiB(benchmark::State& state) {
  const auto half = make_half(state.thread_index());
  std::vector<at::Tensor> tensors{at::ones({256})};
  for (auto _ : state) half->backend->allreduce(tensors)->wait();
}
BENCHMARK(BM_RawAllReduce1KiB)->Threads(kRanks)->UseRealTime();

void BM_GroupAllReduce1KiB(benchmark::State& state) {
  const auto half = make_half(state.thread_index());
  const at::Tensor tensor = at::ones({256});
  for (auto _ : state) dbg::distributed::all_reduce(*half, tensor);
}
BENCHMARK(BM_GroupAllReduce1KiB)->Threads(kRanks)->UseRealTime();

// What the call costs this rank beyond the backend's work, which in a group of one is next to none.
void BM_RawAllReduceAlone(benchmark::State& state) {
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface("lo")};
  const auto backend =
      c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::HashStore>(), 0, 1, options);
  std::vector<at::Tensor> tensors{at::ones({256})};
  for (auto _ : state) backend->allreduce(tensors)->wait();
}
BENCHMARK(BM_RawAllReduceAlone)->UseRealTime();

void BM_GroupAllReduceAlone(benchmark::State& state) {
  GroupHalf half;
  half.label = "tp:cpu";
  half.ranks = {0};
  const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices = {c10d::ProcessGroupGloo::createDeviceForInterface("lo")};
  half.backend = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::HashStore>(), 0, 1, options);
  const at::Tensor tensor = at::ones({256});
  for (auto _ : state) dbg::distributed::all_reduce(half, tensor);
}
BENCHMARK(BM_GroupAllReduceAlone)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
