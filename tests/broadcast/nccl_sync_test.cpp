// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// NCCL's calls and whole syncs over them, where a GPU is; skipped elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <string>
#include <vector>

#include "broadcast/nccl_transport.h"
#include "broadcast/syncing.h"
#include "distributed/nccl_backend.h"

namespace dbg {
namespace {

using test::SyncSetup;
using test::Worker;

class NcclSyncTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = distributed::why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(NcclSyncTest, AWorldOfOneCopiesInBroadcastsAndFinishes) {
  const auto calls = broadcast::make_nccl_calls(broadcast::make_nccl_id(), 0, 1, std::chrono::seconds(30), {});
  void* const device = calls->allocate(1 << 20);
  const at::Tensor sent = at::arange(1 << 18, at::kInt);
  const at::Tensor got = at::zeros_like(sent);
  calls->copy_in(device, sent.const_data_ptr(), 1 << 20);
  calls->broadcast(device, 1 << 20);
  calls->copy_out(got.mutable_data_ptr(), device, 1 << 20);
  const std::uint64_t mark = calls->record();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!calls->is_done(mark) && std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_TRUE(at::equal(sent, got));
}

SyncSetup nccl_setup() {
  SyncSetup setup{{"a", "a"}, {"b"}, test::quick_options()};
  setup.options.transport = "nccl";
  setup.options.timeout = std::chrono::seconds(60);
  return setup;
}

// Ranks on one GPU: each says that it is a host of its own, so that NCCL does not refuse the device that is there
// twice.
DBG_RANK_BODY(syncs_over_nccl) {
  ::setenv("NCCL_HOSTID", formatted("dbg-rank-{}", context.rank).c_str(), 1);
  test::run_worker_in_process(context, nccl_setup(), context.argument, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    for (std::int64_t version = 0; version < 3; ++version) test::sync_sample(*broadcaster, worker, sink, version);
  });
}

void sync_with(const std::string& allocator) {
  const test::TempFolder folder;
  test::expect_all_passed(test::spawn_ranks({.body = "syncs_over_nccl",
                                             .world_size = 3,
                                             .argument = (folder / "store").string(),
                                             .environment = {{"NCCL_SOCKET_IFNAME", "lo"},
                                                             {"PYTORCH_CUDA_ALLOC_CONF", allocator},
                                                             {"PYTORCH_ALLOC_CONF", allocator}},
                                             .limit = std::chrono::seconds(120)}));
}

TEST_F(NcclSyncTest, SeveralRanksOnOneGpu) {
  sync_with("expandable_segments:False");
}

TEST_F(NcclSyncTest, WithExpandableSegments) {
  sync_with("expandable_segments:True");
}

}  // namespace
}  // namespace dbg
