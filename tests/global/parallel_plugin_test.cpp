// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Parallel ranks from live groups into records: each rank's own, also where ranks are threads that share a Dumper.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dbg/dumper.h"
#include "dbg/model_parallel.h"
#include "dbg/participant.h"
#include "dbg/runtime.h"
#include "support/rank_threads.h"
#include "support/temp_folder.h"

namespace dbg {
namespace {

using Axes = std::map<std::string, std::int64_t>;

// The parallel ranks in the one record that was captured; empty when it has none.
Axes parallel_info(const CaptureScope& capture) {
  const auto records = capture.records();
  Axes axes;
  const c10::impl::GenericDict meta = records.at("x").at(0).meta.toGenericDict();
  if (!meta.contains("megatron_parallel_info")) return axes;
  for (const auto& entry : meta.at("megatron_parallel_info").toGenericDict()) {
    axes[entry.key().toStringRef()] = entry.value().toInt();
  }
  return axes;
}

DumperConfig config_for(const test::TempFolder& folder) {
  DumperConfig config;
  config.enable = true;
  config.dir = folder.path().string();
  config.exp_name = "plugin";
  config.enable_output_console = false;
  return config;
}

TEST(ParallelPluginTest, EachThreadsRecordsHoldItsOwnRanks) {
  const test::TempFolder folder;
  Dumper dumper(config_for(folder));
  ParallelSizes sizes;
  sizes.tp = 2;
  sizes.pp = 2;
  GroupOptions options;
  options.device_backend = "gloo";
  options.timeout = std::chrono::seconds(30);
  const std::vector<World> worlds = World::for_threads(4);
  test::run_ranks_as_threads(4, [&](int rank) {
    const auto parallel = ModelParallel::create(worlds[static_cast<std::size_t>(rank)], sizes, options);
    dumper.add_plugin(make_parallel_plugin(*parallel));
    parallel->group("tp")->barrier();
    parallel->group("pp")->barrier();
    const CaptureScope capture = dumper.capture_output();
    dumper.dump("x", at::ones({1}));
    EXPECT_EQ(parallel_info(capture),
              (Axes{{"tp_rank", rank % 2}, {"tp_size", 2}, {"pp_rank", rank / 2}, {"pp_size", 2}}));
    parallel->group("tp")->barrier();
    parallel->group("pp")->barrier();
  });
}

TEST(ParallelPluginTest, AThreadOfAnotherRankGetsNothing) {
  const test::TempFolder folder;
  Dumper dumper(config_for(folder));
  GroupOptions options;
  options.device_backend = "gloo";
  const auto parallel = ModelParallel::create(World::for_threads(1).front(), {}, options);
  dumper.add_plugin(make_parallel_plugin(*parallel));
  const ParticipantScope other(std::make_shared<Participant>(3, 4));
  const CaptureScope capture = dumper.capture_output();
  dumper.dump("x", at::ones({1}));
  EXPECT_TRUE(parallel_info(capture).empty());
}

}  // namespace
}  // namespace dbg
