// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a dump costs: off, filtered out, to disk. tests/bench/run.py puts the Python twin's figures beside these.
#include <ATen/ops/rand.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "dbg/dumper.h"
#include "dbg/log.h"
#include "dbg/runtime.h"

namespace {

// Where records go: memory-backed where there is one, so that the disk is not what is measured.
std::string scratch_folder() {
  const char* given = std::getenv("DBG_BENCH_DIR");
  return given != nullptr ? given : "/dev/shm/dbg_bench";
}

dbg::DumperConfig config_of(bool enable, const std::string& filter) {
  dbg::DumperConfig config;
  config.enable = enable;
  if (!filter.empty()) config.filter = filter;
  config.dir = scratch_folder();
  config.exp_name = "bench";
  config.enable_output_console = false;
  return config;
}

std::atomic<unsigned char> bare_word{0};

void BM_BareLoadAndBranch(benchmark::State& state) {
  const at::Tensor value = at::rand({3});
  std::atomic<unsigned char>* word = &bare_word;
  benchmark::DoNotOptimize(word);  // a word that anyone may write, as the Dumper's
  for (auto _ : state) {
    if (word->load(std::memory_order_relaxed) != 0) benchmark::DoNotOptimize(value.numel());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_BareLoadAndBranch);

void BM_DumpOff(benchmark::State& state) {
  dbg::Dumper dumper(config_of(false, ""));
  const at::Tensor value = at::rand({3});
  int layer = 0;
  for (auto _ : state) {
    dumper.dump("attn_out", value, {{"layer_id", layer}, {"phase", "prefill"}});
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_DumpOff);

void BM_GlobalDumpOff(benchmark::State& state) {
  dbg::Dumper::global();  // reads the environment once, outside the loop
  const at::Tensor value = at::rand({3});
  int layer = 0;
  for (auto _ : state) {
    dbg::dump("attn_out", value, {{"layer_id", layer}, {"phase", "prefill"}});
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_GlobalDumpOff);

void BM_DumpFilteredOut(benchmark::State& state) {
  dbg::Dumper dumper(config_of(true, "layer_id in (0, 1) and name.startswith('mlp')"));
  const at::Tensor value = at::rand({3});
  int layer = 0;
  for (auto _ : state) {
    dumper.dump("attn_out", value, {{"layer_id", layer}, {"phase", "prefill"}});
  }
}
BENCHMARK(BM_DumpFilteredOut);

void BM_Dump3Floats(benchmark::State& state) {
  std::filesystem::remove_all(scratch_folder());
  dbg::Dumper dumper(config_of(true, ""));
  const at::Tensor value = at::rand({3});
  int layer = 0;
  for (auto _ : state) {
    dumper.dump("attn_out", value, {{"layer_id", layer}, {"phase", "prefill"}});
  }
  if (dumper.state().counters.failed != 0) state.SkipWithError("records failed");
  std::filesystem::remove_all(scratch_folder());
}
BENCHMARK(BM_Dump3Floats)->Iterations(5000)->Unit(benchmark::kMicrosecond);

void BM_TorchPickleSave3Floats(benchmark::State& state) {
  std::filesystem::remove_all(scratch_folder());
  std::filesystem::create_directories(scratch_folder());
  const at::Tensor value = at::rand({3});
  int number = 0;
  for (auto _ : state) {
    const std::vector<char> bytes = torch::jit::pickle_save(c10::IValue(value));
    std::ofstream file(scratch_folder() + "/" + std::to_string(number++) + ".pt", std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::remove_all(scratch_folder());
}
BENCHMARK(BM_TorchPickleSave3Floats)->Iterations(5000)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  dbg::set_log_level(dbg::LogLevel::warning);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
