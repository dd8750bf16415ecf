// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The rank that serves the store is stopped, as in a debugger: whatever the others are at ends in time and says so.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/formatted.h"
#include "dbg/backend_factory.h"
#include "dbg/error.h"
#include "dbg/group_coordinator.h"
#include "distributed/groups.h"
#include "distributed/tcp_world.h"
#include "support/rank_processes.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeout{1500};
constexpr milliseconds kSlack{1000};

// Stops this process, once all others have said that they are ready for it.
void stop_when_all_are_ready(c10d::Store& store, int world_size) {
  store.set("pid", std::to_string(::getpid()));
  for (int rank = 1; rank < world_size; ++rank) store.wait({formatted("ready/{}", rank)}, milliseconds(20000));
  ::raise(SIGSTOP);
}

bool is_stopped(int pid) {
  std::ifstream file(formatted("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(')');
  return end != text.npos && end + 2 < text.size() && text[end + 2] == 'T';
}

int pid_of_server(c10d::Store& store) {
  store.wait({"pid"}, milliseconds(20000));
  return std::stoi(store.get_to_str("pid"));
}

void wait_until_stopped(int pid) {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (!is_stopped(pid) && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(2));
  ASSERT_TRUE(is_stopped(pid));
}

// Returns when the server is stopped.
void see_the_server_stop(c10d::Store& store, int rank) {
  const int pid = pid_of_server(store);
  store.set(formatted("ready/{}", rank), "1");
  wait_until_stopped(pid);
}

CommFailure failure_by(milliseconds limit, const std::function<void()>& code) {
  const auto began = Clock::now();
  CommFailure failure;
  try {
    code();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CommError& error) {
    failure = error.failure();
    std::fprintf(stderr, "%s\n", error.what());
  }
  EXPECT_LT(Clock::now() - began, limit) << failure.cause;
  return failure;
}

void expect_store_down(const CommFailure& failure, const World& world) {
  EXPECT_EQ(failure.kind, CommErrorKind::store_down) << failure.cause;
  EXPECT_THAT(failure.cause, testing::HasSubstr(formatted("127.0.0.1:{}", world.store_port())));
  EXPECT_THAT(failure.advice, testing::HasSubstr("stopped, in a debugger"));
}

GroupOptions options_of(const std::string& name) {
  GroupOptions options = test::gloo_pair(name);
  options.timeout = kTimeout;
  return options;
}

// The others' ends show that they are done; the stopped one never ends by itself.
void run_with_stopped_server(const std::string& body) {
  const std::uint16_t port = World::over_tcp({"127.0.0.1", 0, true}, 0, 1).store_port();
  test::RankProcesses ranks({.body = body, .world_size = 3, .argument = std::to_string(port)});
  for (const int rank : {1, 2}) ranks.wait_for_output(rank, "done\n");
  ranks.kill(0);
  const auto& results = ranks.wait();
  for (const std::size_t rank : {1, 2}) EXPECT_TRUE(results[rank].passed()) << rank;
}

void say_done() {
  std::fprintf(stderr, "done\n");
}

DBG_RANK_BODY(server_stops_before_create) {
  const World world = test::open_tcp_world(context);
  if (context.rank == 0) stop_when_all_are_ready(*world.store(), 3);
  see_the_server_stop(*world.store(), context.rank);
  const auto create = [&] { GroupCoordinator::create(world, {{0, 1, 2}}, options_of("tp")); };
  expect_store_down(failure_by(kTimeout + kSlack, create), world);
  // It is known now.
  expect_store_down(failure_by(milliseconds(500), create), world);
  WorldOptions options;
  options.timeout = milliseconds(1000);
  const CommFailure joining = failure_by(options.timeout + kSlack, [&] {
    World::over_tcp({"127.0.0.1", world.store_port(), false}, context.rank, 3, options);
  });
  EXPECT_EQ(joining.kind, CommErrorKind::store_down);
  EXPECT_THAT(joining.operation, testing::HasSubstr(formatted("127.0.0.1:{}", world.store_port())));
  EXPECT_THAT(joining.cause, testing::HasSubstr("does not answer"));
  say_done();
}

TEST(FrozenStoreTest, StoppedBeforeCreateItIsNamedInTimeAndThenAtOnce) {
  run_with_stopped_server("server_stops_before_create");
}

// The cpu half comes first; its backend is made after the handshake.
DBG_RANK_BODY(server_stops_before_connecting) {
  const World world = test::open_tcp_world(context);
  const auto registration = register_backend("stopping", [&](const BackendRequest& request) {
    if (context.rank == 0) stop_when_all_are_ready(*world.store(), 3);
    see_the_server_stop(*world.store(), context.rank);
    return c10::intrusive_ptr<c10d::Backend>(test::somebodys_gloo(request.rank, request.size, request.store));
  });
  GroupOptions options = options_of("tp");
  options.cpu_backend = "stopping";
  expect_store_down(failure_by(kTimeout + kSlack,
                               [&] {
                                 GroupCoordinator::create(world, {{0, 1, 2}}, options);
                               }),
                    world);
  say_done();
}

TEST(FrozenStoreTest, StoppedBetweenHandshakeAndConnectionItIsNamedInTime) {
  run_with_stopped_server("server_stops_before_connecting");
}

DBG_RANK_BODY(server_stops_before_operations) {
  const World world = test::open_tcp_world(context);
  const auto group = GroupCoordinator::create(world, {{0, 1, 2}}, options_of("tp"));
  auto among_the_living = GroupCoordinator::create(world, {{1, 2}}, options_of("rest"));
  auto another = GroupCoordinator::create(world, {{0, 1, 2}}, options_of("pp"));
  if (context.rank == 0) stop_when_all_are_ready(*world.store(), 3);
  see_the_server_stop(*world.store(), context.rank);

  // Who needs no store does not notice, however long it takes.
  if (context.rank == 2) std::this_thread::sleep_for(milliseconds(600));
  at::Tensor ones = at::ones({2});
  among_the_living->all_reduce(ones);
  EXPECT_EQ(ones[0].item<float>(), 2.0F);

  OperationOptions options;
  options.timeout = milliseconds(1000);
  const auto expect_says_so = [&](const std::function<void()>& operation) {
    const CommFailure failure = failure_by(options.timeout + kSlack, operation);
    EXPECT_THAT(failure.cause, testing::HasSubstr(formatted("127.0.0.1:{} does not answer", world.store_port())));
  };
  expect_says_so([&] { group->all_reduce(at::ones({2}), ReduceOp::sum, options); });
  expect_says_so([&] { another->monitored_barrier(options); });

  auto began = Clock::now();
  group->close(milliseconds(1000));
  EXPECT_LT(Clock::now() - began, milliseconds(1000) + kSlack);
  began = Clock::now();
  another.reset();
  EXPECT_LT(Clock::now() - began, milliseconds(1000) + kSlack);
  began = Clock::now();
  among_the_living.reset();
  EXPECT_LT(Clock::now() - began, milliseconds(1000) + kSlack);
  say_done();
}

TEST(FrozenStoreTest, StoppedBeforeOperationsAndCloseBothEndInTime) {
  run_with_stopped_server("server_stops_before_operations");
}

}  // namespace
}  // namespace dbg
