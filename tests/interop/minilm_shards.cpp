// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Dumps some tensors of a run again as two tensor-parallel ranks, each a thread, would: in parts, with their dims.
#include <ATen/Functions.h>

#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dbg/dump_record.h"
#include "dbg/dumper.h"
#include "dbg/participant.h"
#include "dbg/plugin.h"

namespace {

constexpr int kTpSize = 2;

// Says which part of the tensors the calling thread holds.
class TpPlugin : public dbg::FrameworkPlugin {
 public:
  explicit TpPlugin(bool is_swapped) : is_swapped_(is_swapped) {}
  std::string name() const override { return "tp_of_test"; }
  dbg::ParallelState collect_parallel_info() override {
    const int rank = dbg::current_participant()->rank();
    dbg::ParallelState state;
    state.set("tp", is_swapped_ ? kTpSize - 1 - rank : rank, kTpSize).set("pp", 0, 1);
    return state;
  }

 private:
  bool is_swapped_;
};

struct Sharding {
  std::string dims;
  std::function<at::Tensor(const at::Tensor&, int)> part;
};

Sharding split(std::string dims, std::int64_t dim) {
  return {std::move(dims), [dim](const at::Tensor& x, int rank) { return x.chunk(kTpSize, dim)[rank]; }};
}

// As in minilm_twin.py, whose folder ours is compared with.
const std::map<std::string, Sharding>& shardings() {
  static const std::map<std::string, Sharding> kShardings{
      {"attn_q", split("b s h[tp]", 2)},
      {"attn_probs", split("b a[tp] q k", 1)},
      {"attn_output",
       {"b s h[tp:partial]", [](const at::Tensor& x, int rank) { return x * (rank == 0 ? 0.25 : 0.75); }}},
      {"attn_norm", {"b s h # tp:replicated", [](const at::Tensor& x, int) { return x; }}},
      {"ffn_act", split("b s f[tp]", 2)},
  };
  return kShardings;
}

void dump_shards(dbg::Dumper& dumper, const std::vector<std::string>& paths, int rank) {
  const dbg::ParticipantScope scope(std::make_shared<dbg::Participant>(rank, kTpSize, rank));
  for (const std::string& path : paths) {
    const dbg::DumpRecord record = dbg::read_record(path);
    const auto meta = record.meta.toGenericDict();
    const std::string name = meta.at("name").toStringRef();
    const auto sharding = shardings().find(name);
    if (sharding == shardings().end()) continue;
    dbg::DumpOptions options;
    options.dims = sharding->second.dims;
    dumper.dump(name, sharding->second.part(record.value.toTensor(), rank), {{"layer_id", meta.at("layer_id").toInt()}},
                options);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: minilm_shards RECORDS DIR EXP_NAME [swapped]\n";
    return 2;
  }
  try {
    dbg::DumperConfig config;
    config.enable = true;
    config.dir = argv[2];
    config.exp_name = argv[3];
    config.enable_output_console = false;
    dbg::Dumper dumper(config);
    dumper.add_plugin(std::make_shared<TpPlugin>(argc > 4));
    const std::vector<std::string> paths = dbg::list_records(argv[1]);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kTpSize; ++rank) ranks.emplace_back([&, rank] { dump_shards(dumper, paths, rank); });
    for (std::thread& rank : ranks) rank.join();
    return dumper.state().counters.failed == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "minilm_shards: " << error.what() << '\n';
    return 2;
  }
}
