// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a record costs, beside torch::pickle_save and beside a plain write of the same bytes. Run it alone; the last
// lines put the medians in relation. Writes to memory (/dev/shm) unless DBG_BENCH_DIR names another folder.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dbg/dump_record.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLargeElements = std::int64_t{64} << 20;  // of 4 bytes: 256 MiB

// The folder of this run, removed at the end.
const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    const char* given = std::getenv("DBG_BENCH_DIR");
    std::string pattern = std::string(given != nullptr ? given : "/dev/shm") + "/dbg-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder " + pattern);
    return std::filesystem::path(pattern);
  }();
  return path;
}

void check(bool is_good, const char* what) {
  if (!is_good) throw std::runtime_error(std::string(what) + " failed");
}

int create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  check(descriptor >= 0, "open");
  return descriptor;
}

void write_all(int descriptor, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, bytes, size);
    check(written > 0, "write");
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

dbg::DumpRecord record_of(const at::Tensor& tensor, std::int64_t index) {
  c10::impl::GenericDict meta(c10::StringType::get(), c10::AnyType::get());
  meta.insert("step", std::int64_t{0});
  meta.insert("rank", std::int64_t{0});
  meta.insert("dump_index", index);
  meta.insert("name", std::string("abc"));
  meta.insert("recompute_status", std::string("disabled"));
  meta.insert("layer_id", std::int64_t{3});
  meta.insert("world_rank", std::int64_t{0});
  meta.insert("world_size", std::int64_t{1});
  return {tensor, meta};
}

// Every file of a small benchmark gets a new name, as a run's records have.
std::string next_name(const char* kind) {
  static std::int64_t count = 0;
  return folder() / ("step=0___rank=0___dump_index=" + std::to_string(count++) + "___name=" + kind + ".pt");
}

void small_record(benchmark::State& state) {
  const at::Tensor tensor = at::arange(3).to(at::kFloat);
  std::int64_t index = 0;
  for (auto _ : state) dbg::write_record(next_name("dbg"), record_of(tensor, index++));
}

void small_pickle_save(benchmark::State& state) {
  const at::Tensor tensor = at::arange(3).to(at::kFloat);
  for (auto _ : state) {
    const std::vector<char> bytes = torch::jit::pickle_save(tensor);
    const int descriptor = create(next_name("pickle_save"));
    write_all(descriptor, bytes.data(), bytes.size());
    ::close(descriptor);
  }
}

void small_plain_file(benchmark::State& state) {
  const std::string bytes(1500, 'x');
  for (auto _ : state) {
    const int descriptor = create(next_name("plain"));
    write_all(descriptor, bytes.data(), bytes.size());
    ::close(descriptor);
  }
}

const at::Tensor& large_tensor() {
  static const at::Tensor tensor = at::rand({kLargeElements});
  return tensor;
}

// Times one write of a file, not its removal.
template <class Write>
void time_large(benchmark::State& state, Write&& write) {
  const at::Tensor& tensor = large_tensor();
  for (auto _ : state) {
    const std::string path = folder() / "large.pt";
    const Clock::time_point start = Clock::now();
    write(path, tensor);
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
    std::filesystem::remove(path);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(tensor.nbytes()));
}

void large_plain_write(benchmark::State& state) {
  time_large(state, [](const std::string& path, const at::Tensor& tensor) {
    const int descriptor = create(path);
    write_all(descriptor, tensor.const_data_ptr(), tensor.nbytes());
    ::close(descriptor);
  });
}

void large_record(benchmark::State& state, bool checksum) {
  time_large(state, [&](const std::string& path, const at::Tensor& tensor) {
    dbg::write_record(path, record_of(tensor, 1), {.checksum = checksum});
  });
}

// The container that records would have had otherwise.
void large_torch_writer(benchmark::State& state, bool checksum) {
  time_large(state, [&](const std::string& path, const at::Tensor& tensor) {
    const int descriptor = create(path);
    caffe2::serialize::PyTorchStreamWriter writer(
        [&](const void* data, std::size_t size) {
          write_all(descriptor, data, size);
          return size;
        },
        checksum);
    writer.writeRecord("data/0", tensor.const_data_ptr(), tensor.nbytes());
    writer.writeEndOfFile();
    ::close(descriptor);
  });
}

BENCHMARK(small_record)->Iterations(2000)->Unit(benchmark::kMicrosecond);
BENCHMARK(small_pickle_save)->Iterations(2000)->Unit(benchmark::kMicrosecond);
BENCHMARK(small_plain_file)->Iterations(2000)->Unit(benchmark::kMicrosecond);
BENCHMARK(large_plain_write)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(large_record, checksum, true)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(large_record, plain, false)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(large_torch_writer, checksum, true)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(large_torch_writer, plain, false)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

// Keeps the medians, for the relations at the end.
class Relations final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.aggregate_name == "median") medians_[run.run_name.function_name] = run.GetAdjustedRealTime();
    }
    ConsoleReporter::ReportRuns(runs);
  }

  void print(const char* what, const char* of, const char* to) const {
    const auto upper = medians_.find(of);
    const auto lower = medians_.find(to);
    if (upper == medians_.end() || lower == medians_.end()) return;
    std::printf("%-70s %.2f\n", what, upper->second / lower->second);
  }

 private:
  std::map<std::string, double> medians_;
};

}  // namespace

int main(int argc, char** argv) {
  // Taken in turns: what else the machine does at the moment then hits all of them.
  std::vector<char*> arguments(argv, argv + argc);
  std::string repetitions = "--benchmark_repetitions=15";
  std::string interleaving = "--benchmark_enable_random_interleaving=true";
  std::string aggregates = "--benchmark_report_aggregates_only=true";
  arguments.insert(arguments.begin() + 1, {repetitions.data(), interleaving.data(), aggregates.data()});
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  large_tensor();
  Relations relations;
  benchmark::RunSpecifiedBenchmarks(&relations);
  std::printf("\n");
  relations.print("3 floats: torch::pickle_save / record (target: at least 1)", "small_pickle_save", "small_record");
  relations.print("256 MiB: plain write / record with checksum (target: at least 0.65)", "large_plain_write",
                  "large_record/checksum");
  relations.print("256 MiB: plain write / record without (target: at least 0.9)", "large_plain_write",
                  "large_record/plain");
  relations.print("256 MiB: plain write / torch's container with checksum", "large_plain_write",
                  "large_torch_writer/checksum");
  std::error_code ignored;
  std::filesystem::remove_all(folder(), ignored);
  return 0;
}
