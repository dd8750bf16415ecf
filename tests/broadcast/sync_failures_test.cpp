// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Every way a sync can fail while all ranks live: one cause on all of them, in time; the old weights are whole; the
// next sync works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "broadcast/failing_syncs.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Causes;
using test::HookedSink;
using test::one_cause;
using test::quick_options;
using test::run_workers_as_threads;
using test::sample_weights;
using test::ScratchSource;
using test::sync_sample;
using test::sync_well;
using test::SyncSetup;
using test::three_actors_two_consumers;
using test::Worker;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

TEST(SyncFailureTest, ASourceThatThrowsIsNamedWithItsWeight) {
  for (const int culprit : {0, 1, 2}) {  // root, relay, an actor that sends nothing
    const CommFailure failure = one_cause(
        three_actors_two_consumers(), [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
          if (worker.id != culprit) return sync_well(broadcaster, worker, sink, 2);
          ScratchSource source(sample_weights(2), [](std::size_t number) {
            if (number == 8) throw std::runtime_error("the optimizer ate it");
          });
          broadcaster.send(source, 2);
        });
    EXPECT_THAT(failure.cause, AllOf(HasSubstr(formatted("actor {}", culprit)), HasSubstr("weight 8"),
                                     HasSubstr("'fp8'"), HasSubstr("the optimizer ate it")));
    EXPECT_THAT(failure.peers, testing::ElementsAre(culprit));
  }
}

TEST(SyncFailureTest, ASourceThatThrowsAtItsFirstWeight) {
  const CommFailure failure =
      one_cause({}, [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
        if (!worker.is_actor()) return sync_well(broadcaster, worker, sink, 2);
        ScratchSource source({}, [](std::size_t) { throw std::runtime_error("nothing there"); });
        broadcaster.send(source);
      });
  EXPECT_THAT(failure.cause, HasSubstr("nothing there"));
}

TEST(SyncFailureTest, ASinkThatThrowsIsNamedWithItsWeightAndBucket) {
  for (const int culprit : {0, 1}) {
    const CommFailure failure = one_cause(
        three_actors_two_consumers(), [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
          if (worker.is_actor() || worker.index != culprit) return sync_well(broadcaster, worker, sink, 2);
          HookedSink bad([](const WeightInfo& weight) {
            if (weight.name == "int64") throw std::runtime_error("no room left");
          });
          broadcaster.receive(bad);
        });
    EXPECT_THAT(failure.cause, AllOf(HasSubstr(formatted("rollout {} on node b", culprit)), HasSubstr("'int64'"),
                                     HasSubstr("bucket"), HasSubstr("no room left")));
  }
}

TEST(SyncFailureTest, ASinkThatFailsBeforeOrAfterItsWeightsIsNamed) {
  class Failing : public TensorMapSink {
   public:
    explicit Failing(bool at_begin) : at_begin_(at_begin) {}
    void begin(std::int64_t version) override {
      if (at_begin_) throw std::runtime_error("not now");
      TensorMapSink::begin(version);
    }
    void check_complete() override { throw std::runtime_error("one is missing"); }

   private:
    bool at_begin_;
  };
  for (const bool at_begin : {true, false}) {
    const CommFailure failure = one_cause(
        three_actors_two_consumers(), [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
          if (worker.id != 4) return sync_well(broadcaster, worker, sink, 2);
          Failing bad(at_begin);
          broadcaster.receive(bad);
        });
    EXPECT_THAT(failure.cause,
                AllOf(HasSubstr("rollout 1 on node b"), HasSubstr(at_begin ? "not now" : "one is missing")));
  }
}

TEST(SyncFailureTest, ARelayWhoseSourcePartsIsNamedWithBothWeights) {
  struct Change {
    std::function<void(std::vector<NamedParameter>&)> change;
    std::string words;
  };
  const std::vector<Change> changes{
      {[](auto& weights) { std::swap(weights[2], weights[3]); },
       "weight 2 is 'large' (float32 [50, 100]) on the root and 'scalar'"},
      {[](auto& weights) { weights[5].tensor = weights[5].tensor.to(at::kFloat); },
       "weight 5 is 'half' (float16 [33]) on the root"},
      {[](auto& weights) { weights[9].name = "int65"; }, "'int64' (int64 [10]) on the root and 'int65'"},
      {[](auto& weights) { weights[1].tensor = at::zeros({6}); }, "'after.flags' (float32 [5]) on the root"},
      {[](auto& weights) { weights.pop_back(); },
       "weight 18 is 'last' (float32 [1]) on the root, and there is none on this rank"},
      {[](auto& weights) {
         weights.push_back({"extra", at::ones({2000})});
       },
       "extra"},
  };
  for (const Change& change : changes) {
    const CommFailure failure = one_cause(
        three_actors_two_consumers(), [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
          if (worker.id != 1) return sync_well(broadcaster, worker, sink, 2);
          auto weights = sample_weights(2);
          change.change(weights);
          ScratchSource source(weights);
          broadcaster.send(source, 2);
        });
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch);
    EXPECT_THAT(failure.cause, HasSubstr(change.words));
    EXPECT_THAT(failure.cause, HasSubstr("actor 1 on node a"));
  }
}

TEST(SyncFailureTest, ManifestsOfUnlikeLengthAreSeenBeforeAnythingMoves) {
  const CommFailure failure = one_cause(three_actors_two_consumers(),
                                        [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
                                          if (!worker.is_actor()) return sync_well(broadcaster, worker, sink, 2);
                                          auto weights = sample_weights(2);
                                          if (worker.id == 1) weights.pop_back();
                                          TensorListSource source(weights);
                                          broadcaster.send(source, 2);
                                        });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("the root lists 19 weights"), HasSubstr("this actor 18")));
}

class LyingSource : public TensorListSource {
 public:
  explicit LyingSource(const std::vector<NamedParameter>& weights) : TensorListSource(weights) {}
  std::optional<std::vector<WeightInfo>> manifest() const override {
    auto all = TensorListSource::manifest();
    all->at(4).shape = {0, 8};
    return all;
  }
};

TEST(SyncFailureTest, WhatIsSentIsWhatWasDeclared) {
  const CommFailure failure =
      one_cause({}, [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
        if (!worker.is_actor()) return sync_well(broadcaster, worker, sink, 2);
        LyingSource source(sample_weights(2));
        broadcaster.send(source, 2);
      });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("listed weight 4 as 'empty' (float16 [0, 8])"), HasSubstr("[0, 7]")));
}

TEST(SyncFailureTest, WeightsThatCantBeSentAreRefusedByName) {
  const std::vector<std::pair<std::string, at::Tensor>> bad{
      {"undefined", at::Tensor()},
      {"sparse", at::eye(3).to_sparse()},
      {"meta", at::empty({2}, at::TensorOptions().device(at::kMeta))},
      {"quantised", at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)},
      {"last", at::ones({1})},  // a name that was there before
  };
  for (const auto& weight : bad) {
    const CommFailure failure =
        one_cause({}, [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
          if (!worker.is_actor()) return sync_well(broadcaster, worker, sink, 2);
          auto weights = sample_weights(2);
          weights.push_back({weight.first, weight.second});
          TensorListSource source(weights);
          broadcaster.send(source, 2);
        });
    EXPECT_THAT(failure.cause, HasSubstr("'" + weight.first + "'"));
  }
}

TEST(SyncFailureTest, AnInPlaceSinkIsTornUntilTheNextFullSync) {
  const SyncSetup setup{{"a"}, {"b", "b"}, quick_options()};
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    std::vector<NamedParameter> places;
    for (const NamedParameter& weight : sample_weights(0)) {
      places.push_back({weight.name, at::zeros(weight.tensor.sizes(), weight.tensor.options().requires_grad(false))});
    }
    TensorListSink sink(places, WeightSink::Mode::in_place);
    const auto sync = [&](std::int64_t version, bool throws) {
      if (!worker.is_actor()) return broadcaster->receive(sink);
      ScratchSource source(sample_weights(version), [&](std::size_t number) {
        if (throws && number == 12) throw std::runtime_error("half-way");
      });
      return broadcaster->send(source, version);
    };
    sync(1, false);
    test::failure_of_sync([&] { sync(2, true); }, seconds(5));
    EXPECT_EQ(broadcaster->is_torn(), !worker.is_actor());
    EXPECT_EQ(broadcaster->version(), 1);
    sync(3, false);
    EXPECT_FALSE(broadcaster->is_torn());
    if (worker.is_actor()) return;
    for (const NamedParameter& weight : sample_weights(3)) {
      const auto place =
          std::find_if(places.begin(), places.end(), [&](const auto& item) { return item.name == weight.name; });
      const auto bytes = [](const at::Tensor& tensor) {
        return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(at::kByte);
      };
      if (weight.tensor.numel() == 0) continue;
      EXPECT_TRUE(at::equal(bytes(place->tensor), bytes(weight.tensor))) << weight.name;
    }
  });
}

TEST(SyncFailureTest, ASinkThatFailsToCommitFailsAlone) {
  class Uncommitting : public TensorMapSink {
   public:
    void commit(std::int64_t) override { throw std::runtime_error("disk full"); }
  };
  run_workers_as_threads({{"a"}, {"b", "b"}, quick_options()}, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.is_actor()) {
      ScratchSource source(sample_weights(1));
      const SyncReport report = broadcaster->send(source, 1);
      ASSERT_EQ(report.consumers.size(), 2U);
      EXPECT_FALSE(report.consumers[0].has_committed);
      EXPECT_THAT(report.consumers[0].cause, HasSubstr("disk full"));
      EXPECT_TRUE(report.consumers[1].has_committed);
      EXPECT_EQ(broadcaster->version(), -1);  // not all of them have it
      return;
    }
    Uncommitting bad;
    TensorMapSink good;
    if (worker.index == 0) {
      const CommFailure failure = test::failure_of_sync([&] { broadcaster->receive(bad); }, seconds(5));
      EXPECT_THAT(failure.cause, HasSubstr("disk full"));
      EXPECT_TRUE(broadcaster->is_torn());
      EXPECT_EQ(broadcaster->version(), -1);
    } else {
      broadcaster->receive(good);
      EXPECT_EQ(broadcaster->version(), 1);
    }
  });
}

TEST(SyncFailureTest, WhoNeverComesIsNamedByRoleAndNode) {
  SyncSetup setup{{"a", "a"}, {"b", "d"}, quick_options()};
  setup.options.timeout = seconds(2);
  Causes causes;
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    sync_sample(*broadcaster, worker, sink, 1);
    if (worker.id == 3) return;  // rollout 1 does not come to the second
    causes.add(worker.id, test::failure_of_sync([&] { sync_well(*broadcaster, worker, sink, 2); }, milliseconds(3200)));
  });
  const CommFailure failure = causes.only(3);
  EXPECT_EQ(failure.kind, CommErrorKind::peer_missing);
  EXPECT_THAT(failure.cause, HasSubstr("rollout 1 on node d"));
}

TEST(SyncFailureTest, WhoComesLateHearsThatTheOthersGaveUpAndTheNextSyncIsOfAll) {
  SyncSetup setup{{"a"}, {"b", "d"}, quick_options()};
  setup.options.timeout = seconds(2);  // a busy machine has to keep it in the sync after
  std::atomic<int> have_failed{0};
  const auto wait_for = [&](int count) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (have_failed < count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    const bool is_late = worker.id == 2;
    if (is_late) wait_for(2);
    const CommFailure failure =
        test::failure_of_sync([&] { sync_well(*broadcaster, worker, sink, 1); }, milliseconds(3400));
    EXPECT_EQ(failure.kind, CommErrorKind::peer_missing);
    EXPECT_THAT(failure.cause, HasSubstr(is_late ? "was here and gave up" : "rollout 1 on node d"));
    ++have_failed;
    wait_for(3);
    sync_sample(*broadcaster, worker, sink, 2);
  });
}

TEST(SyncFailureTest, WhoNeverJoinsIsNamedByRole) {
  SyncSetup setup{{"a"}, {"b", "b"}, quick_options()};
  setup.options.timeout = seconds(1);
  run_workers_as_threads(setup, [&](const Worker& worker) {
    if (worker.id == 2) return;
    const CommFailure failure = test::failure_of_sync([&] { worker.make(); }, milliseconds(2200));
    EXPECT_THAT(failure.cause, HasSubstr("rollout 1"));
  });
}

TEST(SyncFailureTest, SettingsThatDifferAreShownFromBothSides) {
  struct Change {
    std::function<void(BroadcastOptions&)> change;
    std::vector<std::string> words;
  };
  const std::vector<Change> changes{
      {[](BroadcastOptions& o) { o.bucket_bytes = 8192; }, {"bucket_bytes", "4096", "8192"}},
      {[](BroadcastOptions& o) { o.chunk_bytes = 999; }, {"chunk_bytes", "1000", "999"}},
      {[](BroadcastOptions& o) { o.integrity = Integrity::none; }, {"integrity", "bucket", "none"}},
  };
  for (const Change& change : changes) {
    Causes causes;
    run_workers_as_threads({{"a"}, {"b"}, quick_options()}, [&](const Worker& worker) {
      Worker own = worker;
      if (worker.id == 1) change.change(own.setup.options);
      const auto broadcaster = own.make();
      TensorMapSink sink;
      causes.add(worker.id, test::failure_of_sync([&] { sync_well(*broadcaster, own, sink, 1); }, seconds(5)));
    });
    const CommFailure failure = causes.only(2);
    EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch);
    for (const std::string& word : change.words) EXPECT_THAT(failure.cause, HasSubstr(word));
  }
}

TEST(SyncFailureTest, TopologiesThatDifferAreShownFromBothSides) {
  // A driver that hands two workers different topologies.
  SyncSetup setup{{"a", "a"}, {"b"}, quick_options()};
  setup.options.timeout = seconds(3);  // who comes when the others have given up waits for them that long
  Causes causes;
  run_workers_as_threads(setup, [&](const Worker& worker) {
    std::vector<WorkerMetadata> actors;
    for (int i = 0; i < 2; ++i)
      actors.push_back(WeightBroadcaster::metadata(WorkerRole::actor, i, 2, setup.options_of(i)));
    const auto topology =
        build_topology(actors, {WeightBroadcaster::metadata(WorkerRole::rollout, 0, 1, setup.options_of(2))},
                       /*multi_sender=*/worker.id != 2);
    const auto broadcaster =
        WeightBroadcaster::create(worker.store, topology, worker.role, worker.index, setup.options_of(worker.id));
    TensorMapSink sink;
    causes.add(worker.id, test::failure_of_sync([&] { sync_well(*broadcaster, worker, sink, 1); }, seconds(5)));
  });
  EXPECT_THAT(causes.only(3).cause, AllOf(HasSubstr("num_senders"), HasSubstr("1"), HasSubstr("2")));
}

TEST(SyncFailureTest, WhoCountsTheWorkersDifferentlyIsShownFromBothSides) {
  // As many in all, and more. Each names the others as it counts them, so the causes are alike but for that.
  for (const bool is_as_many : {true, false}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const std::vector<BroadcastRole> roles{
        BroadcastRole::actor(0, 1, 2), BroadcastRole::rollout(0, 1, 2),
        is_as_many ? BroadcastRole::rollout(0, 2, 1) : BroadcastRole::rollout(1, 1, 3)};
    BroadcastOptions options = quick_options();
    options.timeout = seconds(2);
    test::run_ranks_as_threads(3, [&](int id) {
      const CommFailure failure = test::failure_of_sync(
          [&] { WeightBroadcaster::create(store, roles[static_cast<std::size_t>(id)], options); }, milliseconds(3500));
      EXPECT_EQ(failure.kind, CommErrorKind::handshake_mismatch);
      EXPECT_THAT(failure.cause, is_as_many ? HasSubstr("has num_actors 1, ") : HasSubstr("[0, 1, 2]"));
      EXPECT_THAT(failure.cause, is_as_many ? HasSubstr("has 2") : HasSubstr("[0, 1, 2, 3]"));
    });
  }
}

// A source whose next() waits until all actors are in it, as a collective does.
class MeetingSource : public ScratchSource {
 public:
  struct Place {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::size_t, int> arrived;
  };
  MeetingSource(std::vector<NamedParameter> weights, Place& place, int count, std::atomic<int>& left_alone)
      : ScratchSource(std::move(weights), [&place, count, &left_alone](std::size_t number) {
          std::unique_lock lock(place.mutex);
          ++place.arrived[number];
          place.changed.notify_all();
          if (!place.changed.wait_for(lock, seconds(4), [&] { return place.arrived[number] % count == 0; }))
            ++left_alone;
        }) {}
};

TEST(SyncFailureTest, ActorsStopAfterTheSameWeightSoThatNobodyWaitsInACollective) {
  for (const int failing_weight : {0, 3, 9, 18}) {
    MeetingSource::Place place;
    std::atomic<int> left_alone{0};
    std::mutex mutex;
    std::map<int, int> pulls;
    run_workers_as_threads({{"a", "c", "a"}, {"b"}, quick_options()}, [&](const Worker& worker) {
      const auto broadcaster = worker.make();
      if (!worker.is_actor()) {
        int number = 0;
        HookedSink sink([&](const WeightInfo&) {
          if (number++ == failing_weight) throw std::runtime_error("the sink is full");
        });
        test::failure_of_sync([&] { broadcaster->receive(sink); }, seconds(5));
        return;
      }
      MeetingSource source(sample_weights(1), place, 3, left_alone);
      test::failure_of_sync([&] { broadcaster->send(source); }, seconds(5));
      const std::lock_guard lock(mutex);
      pulls[worker.id] = source.pulls();
    });
    EXPECT_EQ(left_alone.load(), 0) << failing_weight;
    EXPECT_EQ(pulls[0], pulls[1]) << failing_weight;
    EXPECT_EQ(pulls[0], pulls[2]) << failing_weight;
  }
}

TEST(SyncFailureTest, ASourceThatHangsIsNamedByThoseThatWait) {
  std::atomic<bool> has_failed{false};
  SyncSetup setup{{"a"}, {"b"}, quick_options()};
  setup.options.timeout = seconds(1);
  Causes causes;
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    causes.add(worker.id, test::failure_of_sync(
                              [&] {
                                if (!worker.is_actor()) {
                                  broadcaster->receive(sink);
                                  return;
                                }
                                ScratchSource source(sample_weights(1), [&](std::size_t number) {
                                  // It hangs until the consumer has had enough, or the test has.
                                  const auto deadline = std::chrono::steady_clock::now() + seconds(10);
                                  while (number == 10 && !has_failed && std::chrono::steady_clock::now() < deadline) {
                                    std::this_thread::sleep_for(milliseconds(1));
                                  }
                                });
                                broadcaster->send(source);
                              },
                              milliseconds(4500)));
    if (!worker.is_actor()) has_failed = true;
  });
  EXPECT_THAT(causes.only(2).cause,
              AllOf(HasSubstr("actor 0 on node a takes weight 10 from its source"), HasSubstr("own code")));
}

}  // namespace
}  // namespace dbg
