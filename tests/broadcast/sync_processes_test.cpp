// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that die or are stopped in the middle of a sync: the others name them, in time, and go on without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "broadcast/broadcaster_impl.h"
#include "broadcast/syncing.h"
#include "dbg/world.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::quick_options;
using test::sample_weights;
using test::ScratchSource;
using test::SyncSetup;
using test::Worker;
using testing::HasSubstr;

constexpr milliseconds kTimeout{3000};
// From the begin of the sync: the bytes before the loss, the deadline, the roll-call, all on a machine that is busy.
constexpr milliseconds kLimit{12000};

SyncSetup setup_without(int victim) {
  SyncSetup setup{{"a", "a"}, {"b", "b"}, quick_options()};
  setup.options.timeout = kTimeout;
  setup.options.bucket_bytes = 1 << 16;
  setup.options.chunk_bytes = 1 << 12;
  if (victim == 1) setup.actor_nodes.pop_back();
  if (victim >= 2) setup.rollout_nodes.pop_back();
  return setup;
}

// Ends or stops its own process instead of the message that reaches a number of bytes, sent and received together.
class MortalBackend : public c10d::Backend {
 public:
  MortalBackend(c10::intrusive_ptr<c10d::Backend> inner, int number, std::uint64_t after_bytes)
      : c10d::Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        signal_(number),
        left_(after_bytes) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    count(tensors);
    return inner_->send(tensors, to, tag);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    count(tensors);
    return inner_->recv(tensors, from, tag);
  }

 private:
  void count(const std::vector<at::Tensor>& tensors) {
    const std::uint64_t size = tensors.front().nbytes();
    if (size > left_) ::kill(::getpid(), signal_);
    left_ -= std::min(size, left_);
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  int signal_;
  std::uint64_t left_;
};

// Below what any role moves of large_weights(): whoever is lost is lost in the middle.
constexpr std::uint64_t kMostBytes = 3'600'000;

std::vector<NamedParameter> large_weights() {
  std::vector<NamedParameter> weights = sample_weights(1);
  for (int i = 0; i < 12; ++i) weights.push_back({formatted("block.{}", i), at::full({100000}, 1.0 * i, at::kFloat)});
  return weights;
}

void sync_large(WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
  if (worker.is_actor()) {
    ScratchSource source(large_weights());
    broadcaster.send(source, 1);
  } else {
    broadcaster.receive(sink);
  }
}

// Once more, without the victim: the same objects can't do that, new ones over the same store can.
void go_on_without(int victim, const Worker& worker) {
  if (victim == 0) return;
  Worker own = worker;
  own.setup = setup_without(victim);
  own.setup.options.timeout = seconds(20);
  if (victim == 1 && worker.id > 1) own.id = worker.id - 1;
  if (victim == 2 && worker.id == 3) {
    own.id = 2;
    own.index = 0;
  }
  const auto broadcaster = own.make();
  TensorMapSink sink;
  test::sync_sample(*broadcaster, own, sink, 9);
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// The argument is `port victim signal bytes`.
DBG_RANK_BODY(syncs_until_somebody_is_gone) {
  std::istringstream argument(context.argument);
  int port = 0;
  int victim = 0;
  int number = 0;
  std::uint64_t after = 0;
  argument >> port >> victim >> number >> after;
  TcpStoreAddress address;
  address.host = "127.0.0.1";
  address.port = static_cast<std::uint16_t>(port);
  const World world = World::over_tcp(address, context.rank, context.world_size, {.timeout = seconds(20)});
  const SyncSetup setup = setup_without(-1);
  const Worker worker{context.rank, setup.role_of(context.rank), setup.index_of(context.rank), world.store(), setup};
  std::chrono::steady_clock::time_point began;
  {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    test::sync_sample(*broadcaster, worker, sink, 0);
    if (worker.id == victim) {
      impl_of(*broadcaster).wrap_backend = [&](auto inner) {
        return c10::make_intrusive<MortalBackend>(inner, number, after);
      };
    }
    began = std::chrono::steady_clock::now();
    try {
      sync_large(*broadcaster, worker, sink);
      std::printf("came through\n");
    } catch (const SyncError& error) {
      EXPECT_LT(std::chrono::steady_clock::now() - began, kLimit);
      EXPECT_EQ(broadcaster->version(), 0);
      if (!worker.is_actor()) test::expect_version(sink, sample_weights(0));
      std::printf("cause: %s\n", error.failure().cause.c_str());
    }
    std::printf("after %.1f s\n", seconds_since(began));
    std::fflush(stdout);
    if (worker.id == victim) ::kill(::getpid(), SIGKILL);
  }
  std::printf("finalized after %.1f s\n", seconds_since(began));
  go_on_without(victim, worker);
  std::printf("went on, after %.1f s\n", seconds_since(began));
}

std::string line_of(const std::string& output, const std::string& start) {
  const std::size_t begin = output.find(start);
  if (begin == output.npos) return "";
  return output.substr(begin, output.find('\n', begin) - begin);
}

void lose_one(int victim, int number, std::uint64_t after_bytes) {
  SCOPED_TRACE(formatted("worker {} gets signal {} after {} bytes", victim, number, after_bytes));
  TcpStoreAddress address;
  address.host = "127.0.0.1";
  address.is_server = true;
  const World server = World::over_tcp(address, 0, 1, {.timeout = seconds(20)});
  test::RankProcesses ranks({.body = "syncs_until_somebody_is_gone",
                             .world_size = 4,
                             .argument = formatted("{} {} {} {}", server.store_port(), victim, number, after_bytes)});
  const std::vector<std::string> names{"actor 0 on node a", "actor 1 on node a", "rollout 0 on node b",
                                       "rollout 1 on node b"};
  // A stopped one stays until the others are done with it.
  for (int rank = 0; rank < 4; ++rank) {
    if (rank != victim) ranks.wait_for_output(rank, "went on");
  }
  ranks.kill(victim);
  std::vector<std::string> causes;
  for (const test::RankResult& result : ranks.wait()) {
    if (result.rank == victim) continue;
    EXPECT_TRUE(result.passed()) << result.output;
    causes.push_back(line_of(result.output, "cause: "));
  }
  for (const std::string& cause : causes) {
    EXPECT_EQ(cause, causes.front());
    EXPECT_THAT(cause, testing::AllOf(HasSubstr("no word from " + names[static_cast<std::size_t>(victim)]),
                                      HasSubstr("buckets were through")));
  }
}

class LostWorkerTest : public testing::TestWithParam<int> {};

TEST_P(LostWorkerTest, AtARandomByteItIsNamed) {
  std::mt19937 random(static_cast<unsigned>(100 + GetParam()));
  lose_one(GetParam(), SIGKILL, random() % kMostBytes);
  // A stopped one keeps its connections: seconds each, so here of two roles only.
  if (GetParam() == 1 || GetParam() == 2) lose_one(GetParam(), SIGSTOP, random() % kMostBytes);
}

std::string name_of_victim(const testing::TestParamInfo<int>& info) {
  return std::vector<std::string>{"Root", "Relay", "Entry", "LastConsumer"}[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(All, LostWorkerTest, testing::Values(0, 1, 2, 3), name_of_victim);

// The argument is `port signal`; rank 0 serves the store and is the root.
DBG_RANK_BODY(syncs_until_the_store_is_gone) {
  std::istringstream argument(context.argument);
  int port = 0;
  int number = 0;
  argument >> port >> number;
  TcpStoreAddress address;
  address.host = "127.0.0.1";
  address.port = static_cast<std::uint16_t>(port);
  address.is_server = context.rank == 0;
  const World world = World::over_tcp(address, context.rank, context.world_size, {.timeout = seconds(20)});
  const SyncSetup setup = setup_without(-1);
  const Worker worker{context.rank, setup.role_of(context.rank), setup.index_of(context.rank), world.store(), setup};
  const auto broadcaster = worker.make();
  TensorMapSink sink;
  test::sync_sample(*broadcaster, worker, sink, 0);
  if (worker.id == 0) {
    impl_of(*broadcaster).wrap_backend = [&](auto inner) {
      return c10::make_intrusive<MortalBackend>(inner, number, kMostBytes / 2);
    };
  }
  const auto began = std::chrono::steady_clock::now();
  try {
    sync_large(*broadcaster, worker, sink);
    std::printf("came through\n");
  } catch (const SyncError& error) {
    std::printf("cause: %s\n", error.failure().cause.c_str());
  }
  // Each has a cause of its own, since nothing is left to agree over; but in time.
  EXPECT_LT(std::chrono::steady_clock::now() - began, kLimit);
  EXPECT_EQ(broadcaster->version(), 0);
  if (!worker.is_actor()) test::expect_version(sink, sample_weights(0));
  broadcaster->finalize();
  EXPECT_LT(std::chrono::steady_clock::now() - began, kLimit + seconds(5));
  std::printf("went on\n");
  std::fflush(stdout);
  // What else holds the store is not this test's.
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST(LostStoreTest, WithTheStoresHostKilledOrStoppedAllEndInTime) {
  for (const int number : {SIGKILL, SIGSTOP}) {
    TcpStoreAddress address;
    address.host = "127.0.0.1";
    address.is_server = true;
    int port = 0;
    {
      const World probe = World::over_tcp(address, 0, 1, {.timeout = seconds(20)});
      port = probe.store_port();
    }
    test::RankProcesses ranks(
        {.body = "syncs_until_the_store_is_gone", .world_size = 4, .argument = formatted("{} {}", port, number)});
    for (int rank = 1; rank < 4; ++rank) ranks.wait_for_output(rank, "went on");
    ranks.kill(0);
    for (const test::RankResult& result : ranks.wait()) {
      if (result.rank == 0) continue;
      EXPECT_TRUE(result.passed()) << result.output;
      EXPECT_NE(line_of(result.output, "cause: "), "") << result.output;
    }
  }
}

// The same at many more bytes; minutes.
class LostWorkerSlowTest : public testing::TestWithParam<int> {};

TEST_P(LostWorkerSlowTest, AtFiftyBytes) {
  std::mt19937 random(static_cast<unsigned>(300 + GetParam()));
  for (int round = 0; round < 50; ++round) {
    lose_one(GetParam(), round % 5 == 4 ? SIGSTOP : SIGKILL, random() % kMostBytes);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Slow, LostWorkerSlowTest, testing::Values(0, 1, 2, 3), name_of_victim);

}  // namespace
}  // namespace dbg
