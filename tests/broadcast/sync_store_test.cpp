// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What syncs leave in the store, what they make of what others left there, and what a store that fails for a moment
// does to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "broadcast/failing_syncs.h"
#include "broadcast/hooked_store.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Causes;
using test::HookedStore;
using test::quick_options;
using test::sample_weights;
using test::sync_sample;
using test::sync_well;
using test::SyncSetup;
using test::Worker;
using testing::HasSubstr;

void run_over(const c10::intrusive_ptr<c10d::Store>& store, const SyncSetup& setup, const test::WorkerBody& body) {
  test::run_ranks_as_threads(setup.size(), [&](int id) {
    body({id, setup.role_of(id), setup.index_of(id), store, setup});
  });
}

// As a process that is killed leaves its broadcaster: nothing is deleted, nobody is told.
void leave_as_killed(std::unique_ptr<WeightBroadcaster> broadcaster) {
  static std::mutex mutex;
  static auto* const left = new std::vector<std::unique_ptr<WeightBroadcaster>>;  // never destroyed, and no leak
  const std::lock_guard lock(mutex);
  left->push_back(std::move(broadcaster));
}

class Incomplete : public TensorMapSink {
 public:
  void check_complete() override { throw std::runtime_error("one is missing"); }
  void commit(std::int64_t version) override {
    ++commits;
    TensorMapSink::commit(version);
  }
  int commits = 0;
};

SyncSetup with_rollouts(int count) {
  return {{"a"}, std::vector<std::string>(static_cast<std::size_t>(count), "b"), quick_options()};
}

void sync_three_times(const c10::intrusive_ptr<c10d::Store>& store, const SyncSetup& setup) {
  run_over(store, setup, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    for (std::int64_t version = 0; version < 3; ++version) sync_sample(*broadcaster, worker, sink, version);
  });
}

TEST(SyncStoreTest, WhatAnotherMembershipLeftOfAFailureIsNotThisOnesCause) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_over(store, with_rollouts(3), [](const Worker& worker) {
    auto broadcaster = worker.make();
    TensorMapSink sink;
    sync_sample(*broadcaster, worker, sink, 0);
    Incomplete bad;
    test::failure_of_sync([&] { sync_well(*broadcaster, worker, worker.index == 0 ? bad : sink, 1); }, seconds(10));
    leave_as_killed(std::move(broadcaster));
  });
  sync_three_times(store, with_rollouts(2));
  sync_three_times(store, with_rollouts(3));
}

TEST(SyncStoreTest, WhatAnotherMembershipCommittedIsNotThisOnesWord) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_over(store, with_rollouts(3), [](const Worker& worker) {
    auto broadcaster = worker.make();
    TensorMapSink sink;
    for (std::int64_t version = 0; version < 2; ++version) sync_sample(*broadcaster, worker, sink, version);
    leave_as_killed(std::move(broadcaster));
  });
  Causes causes;
  run_over(store, with_rollouts(2), [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    sync_sample(*broadcaster, worker, sink, 5);
    Incomplete bad;
    causes.add(worker.id, test::failure_of_sync(
                              [&] { sync_well(*broadcaster, worker, worker.id == 2 ? bad : sink, 6); }, seconds(10)));
    EXPECT_EQ(broadcaster->version(), 5);
    if (worker.id == 1) test::expect_version(sink, sample_weights(5));
    sync_sample(*broadcaster, worker, sink, 7);
  });
  EXPECT_THAT(causes.only(3).cause, HasSubstr("one is missing"));
  sync_three_times(store, with_rollouts(3));
}

TEST(SyncStoreTest, AfterAFailedLastSyncNoKeyIsLeftButCounters) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const SyncSetup setup{{"a", "c"}, {"b", "b"}, quick_options()};
  run_over(store, setup, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    sync_sample(*broadcaster, worker, sink, 0);
    Incomplete bad;
    test::failure_of_sync([&] { sync_well(*broadcaster, worker, worker.index == 0 ? bad : sink, 1); }, seconds(10));
  });
  EXPECT_LE(store->getNumKeys(), 3);
}

TEST(SyncStoreTest, WhoGoesRightAfterTheStartIsStillKnownToTheOthers) {
  for (int round = 0; round < 20; ++round) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    run_over(store, with_rollouts(3), [](const Worker& worker) { worker.make(); });
  }
}

// Syncs once; `before` and `after` are the hooks of one worker's store.
struct Outcome {
  std::map<int, std::int64_t> versions;
  std::vector<ConsumerCommit> consumers;
};

Outcome sync_with_hooks(int victim, const HookedStore::Hook& before, const HookedStore::Hook& after,
                        milliseconds timeout = seconds(20)) {
  const auto shared = c10::make_intrusive<c10d::HashStore>();
  SyncSetup setup = with_rollouts(2);
  setup.options.timeout = timeout;
  std::mutex mutex;
  Outcome outcome;
  test::run_ranks_as_threads(setup.size(), [&](int id) {
    const bool is_victim = id == victim;
    const auto store = c10::make_intrusive<HookedStore>(shared, is_victim ? before : HookedStore::Hook(),
                                                        is_victim ? after : HookedStore::Hook());
    const Worker worker{id, setup.role_of(id), setup.index_of(id), store, setup};
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    SyncReport report;
    if (worker.is_actor()) {
      TensorListSource source(sample_weights(1));
      report = broadcaster->send(source, 1);
    } else {
      report = broadcaster->receive(sink);
      test::expect_version(sink, sample_weights(1));
    }
    const std::lock_guard lock(mutex);
    outcome.versions[id] = broadcaster->version();
    if (worker.is_actor()) outcome.consumers = report.consumers;
  });
  return outcome;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.npos, end) == 0;
}

TEST(SyncStoreTest, AStoreThatFailsForAMomentDoesNotUndoADecision) {
  // A consumer that asks for the verdict.
  std::atomic<int> asked{0};
  const Outcome first = sync_with_hooks(1,
                                        [&](const std::string& call, const std::string& key) {
                                          if (call == "check" && ends_with(key, "/verdict") && asked++ < 8)
                                            test::throw_store_error();
                                        },
                                        {});
  EXPECT_GT(asked.load(), 0);
  EXPECT_THAT(first.versions, testing::Each(testing::Pair(testing::_, 1)));
  // The root, whose word is written, and whose connection breaks before it hears so.
  std::atomic<int> decided{0};
  const Outcome second = sync_with_hooks(0, {}, [&](const std::string& call, const std::string& key) {
    if (call == "compareSet" && ends_with(key, "/verdict") && decided++ == 0) test::throw_store_error();
  });
  EXPECT_GT(decided.load(), 1);
  EXPECT_THAT(second.versions, testing::Each(testing::Pair(testing::_, 1)));
}

TEST(SyncStoreTest, AStoreThatFailsAfterTheCommitTakesNothingBack) {
  const Outcome outcome = sync_with_hooks(
      1,
      [](const std::string& call, const std::string& key) {
        if (call == "set" && key.find("/done/") != key.npos) test::throw_store_error();
      },
      {}, milliseconds(2000));
  EXPECT_EQ(outcome.versions.at(1), 1);
  EXPECT_EQ(outcome.versions.at(2), 1);
  // The root can't know.
  ASSERT_EQ(outcome.consumers.size(), 2U);
  EXPECT_FALSE(outcome.consumers[0].has_committed);
  EXPECT_THAT(outcome.consumers[0].cause, HasSubstr("no word within"));
  EXPECT_TRUE(outcome.consumers[1].has_committed);
  EXPECT_EQ(outcome.versions.at(0), -1);
}

TEST(SyncStoreTest, WhateverAStoreThrowsIsASyncError) {
  const auto shared = c10::make_intrusive<c10d::HashStore>();
  const auto broken = c10::make_intrusive<HookedStore>(shared, [](const std::string&, const std::string&) {
    throw std::system_error(std::make_error_code(std::errc::connection_reset));
  });
  const SyncSetup setup = with_rollouts(1);
  try {
    WeightBroadcaster::create(broken, setup.broadcast_role(0), setup.options_of(0));
    ADD_FAILURE() << "accepted";
  } catch (const SyncError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::store_down);
    EXPECT_THAT(error.what(), HasSubstr("the store failed"));
  }
  const auto topology = build_topology({WeightBroadcaster::metadata(WorkerRole::actor, 0, 1, setup.options_of(0))},
                                       {WeightBroadcaster::metadata(WorkerRole::rollout, 0, 1, setup.options_of(1))});
  const auto broadcaster = WeightBroadcaster::create(broken, topology, WorkerRole::rollout, 0, setup.options_of(1));
  TensorMapSink sink;
  try {
    broadcaster->receive(sink);
    ADD_FAILURE() << "received";
  } catch (const SyncError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::store_down);
  }
}

}  // namespace
}  // namespace dbg
