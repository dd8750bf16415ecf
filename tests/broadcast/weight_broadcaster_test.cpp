// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Whole syncs over real gloo groups: what arrives is what was sent, whatever the topology, bucket, mode and order.
#include "dbg/weight_broadcaster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "broadcast/syncing.h"
#include "dbg/group_coordinator.h"
#include "dbg/world.h"
#include "support/forked_child.h"
#include "support/log_capture.h"

namespace dbg {
namespace {

using test::quick_options;
using test::run_workers_as_threads;
using test::sample_weights;
using test::ScratchSource;
using test::sync_sample;
using test::SyncSetup;
using test::Worker;
using testing::HasSubstr;

TEST(WeightBroadcasterTest, OneSenderOneConsumer) {
  run_workers_as_threads({}, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    EXPECT_EQ(broadcaster->version(), -1);
    const SyncReport report = sync_sample(*broadcaster, worker, sink, 7);
    EXPECT_EQ(report.version, 7);
    EXPECT_EQ(report.num_weights, sample_weights(7).size());
    EXPECT_GT(report.num_buckets, 5U);
    EXPECT_TRUE(report.group_was_made);
    if (!worker.is_actor()) return;
    ASSERT_EQ(report.consumers.size(), 1U);
    EXPECT_TRUE(report.consumers[0].has_committed);
    EXPECT_EQ(report.consumers[0].consumer, "rollout 0 on node b");
    // What goes over the wire is the payload, what aligns it, and little else.
    EXPECT_GT(report.sent_bytes, report.total_bytes);
    EXPECT_LT(report.sent_bytes, report.total_bytes + 256 * report.num_weights + 512 * (report.num_buckets + 1));
  });
}

struct Shape {
  std::string name;
  std::vector<std::string> actors;
  std::vector<std::string> rollouts;
  bool multi_sender;
  int num_senders;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {"two_and_two", {"a", "a"}, {"b", "b"}, true, 2},
      {"two_and_two_single", {"a", "a"}, {"b", "b"}, false, 1},
      {"one_actor_elsewhere", {"a", "c", "a"}, {"b", "d"}, true, 2},
      {"four_and_four", {"a", "a", "a", "a"}, {"b", "b", "c", "c"}, true, 4},
      {"more_senders_than_consumers", {"a", "a", "a"}, {"b"}, true, 3},
      {"consumers_beside_the_senders", {"a", "a"}, {"b", "a", "a"}, true, 2},
  };
  return all;
}

void sync_in_shape(const Shape& shape, const Worker& worker) {
  const auto broadcaster = worker.make();
  EXPECT_EQ(broadcaster->topology().num_senders, shape.num_senders);
  TensorMapSink sink;
  for (std::int64_t version = 0; version < 3; ++version) sync_sample(*broadcaster, worker, sink, version);
}

SyncSetup setup_of(const Shape& shape) {
  SyncSetup setup{shape.actors, shape.rollouts, quick_options()};
  setup.options.multi_sender = shape.multi_sender;
  return setup;
}

TEST(WeightBroadcasterTest, AnyTopologyAsThreads) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    run_workers_as_threads(setup_of(shape), [&](const Worker& worker) { sync_in_shape(shape, worker); });
  }
}

// The argument is a folder for stores. Starting a process costs more than its syncs: each takes part in all shapes that
// have room for it.
DBG_RANK_BODY(syncs_in_shapes) {
  // Four of four each, two of two each, one actor elsewhere.
  for (const std::size_t i : {3, 0, 2}) {
    const SyncSetup setup = setup_of(shapes()[i]);
    if (context.rank >= setup.size()) continue;
    test::RankContext own = context;
    own.world_size = setup.size();
    test::run_worker_in_process(own, setup, context.argument + "/" + shapes()[i].name,
                                [&](const Worker& worker) { sync_in_shape(shapes()[i], worker); });
  }
}

TEST(WeightBroadcasterTest, AnyTopologyAsProcesses) {
  const test::TempFolder folder;
  test::expect_all_passed(
      test::spawn_ranks({.body = "syncs_in_shapes", .world_size = 8, .argument = folder.path().string()}));
}

TEST(WeightBroadcasterTest, AnyBucketGivesTheSameBytes) {
  const std::vector<std::pair<std::uint64_t, Integrity>> cases{
      {64, Integrity::weight},
      {100, Integrity::bucket},
      {1 << 12, Integrity::none},
      {1 << 12, Integrity::bucket},
      {1 << 12, Integrity::weight},
      {std::uint64_t{64} << 20, Integrity::none},
      {std::uint64_t{64} << 20, Integrity::weight},
  };
  for (const auto& [bucket, integrity] : cases) {
    SCOPED_TRACE(formatted("buckets of {}", bucket));
    SyncSetup setup{{"a", "a"}, {"b", "b"}, quick_options()};
    setup.options.bucket_bytes = bucket;
    setup.options.chunk_bytes = bucket < 1000 ? 32 : 1000;
    setup.options.integrity = integrity;
    run_workers_as_threads(setup, [](const Worker& worker) {
      const auto broadcaster = worker.make();
      TensorMapSink sink;
      sync_sample(*broadcaster, worker, sink, 1);
    });
  }
}

TEST(WeightBroadcasterTest, KeepsOrRebuildsTheGroupInBothModes) {
  for (const bool multi_sender : {true, false}) {
    for (const bool rebuild : {true, false}) {
      SyncSetup setup{{"a", "a"}, {"b"}, quick_options()};
      setup.options.multi_sender = multi_sender;
      setup.options.rebuild_group = rebuild;
      run_workers_as_threads(setup, [&](const Worker& worker) {
        const auto broadcaster = worker.make();
        TensorMapSink sink;
        for (std::int64_t version = 0; version < 3; ++version) {
          const SyncReport report = sync_sample(*broadcaster, worker, sink, version);
          EXPECT_EQ(report.group_was_made, rebuild || version == 0);
        }
        broadcaster->finalize();
        broadcaster->finalize();  // a second time is nothing
      });
    }
  }
}

TEST(WeightBroadcasterTest, DepthOneAndManyWorkToo) {
  for (const int depth : {1, 2, 5}) {
    SyncSetup setup{{"a", "a"}, {"b", "c"}, quick_options()};
    setup.options.depth = depth;
    run_workers_as_threads(setup, [&](const Worker& worker) {
      const auto broadcaster = worker.make();
      TensorMapSink sink;
      const SyncReport report = sync_sample(*broadcaster, worker, sink, 3);
      EXPECT_LE(report.most_buckets_in_use, static_cast<std::uint64_t>(depth));
    });
  }
}

TEST(WeightBroadcasterTest, VersionsCountUpByThemselves) {
  run_workers_as_threads({}, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    const auto sync = [&](std::optional<std::int64_t> version) {
      TensorListSource source(sample_weights(0));
      return worker.is_actor() ? broadcaster->send(source, version) : broadcaster->receive(sink);
    };
    EXPECT_EQ(sync(std::nullopt).version, 0);
    EXPECT_EQ(sync(std::nullopt).version, 1);
    EXPECT_EQ(sync(41).version, 41);
    EXPECT_EQ(sync(std::nullopt).version, 42);
  });
}

TEST(WeightBroadcasterTest, TwoBroadcastersInOneProcess) {
  run_workers_as_threads({{"a", "a"}, {"b"}, quick_options()}, [](const Worker& worker) {
    Worker other = worker;
    other.setup.options.name = "critic";
    const auto first = worker.make();
    const auto second = other.make();
    TensorMapSink sink;
    TensorMapSink other_sink;
    for (std::int64_t version = 0; version < 2; ++version) {
      sync_sample(*first, worker, sink, version);
      sync_sample(*second, other, other_sink, version + 10);
    }
    if (!worker.is_actor()) test::expect_version(sink, sample_weights(1));
  });
}

TEST(WeightBroadcasterTest, WithADriverNobodyGathersMetadata) {
  const SyncSetup setup{{"a", "a"}, {"b"}, quick_options()};
  std::vector<WorkerMetadata> actors;
  std::vector<WorkerMetadata> rollouts;
  for (int id = 0; id < setup.size(); ++id) {
    const int count = id < 2 ? 2 : 1;
    const auto own = WeightBroadcaster::metadata(setup.role_of(id), setup.index_of(id), count, setup.options_of(id));
    (id < 2 ? actors : rollouts).push_back(WorkerMetadata::from_json(own.to_json()));
  }
  const std::string handed_on = build_topology(actors, rollouts).to_json();
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = WeightBroadcaster::create(worker.store, BroadcastTopology::from_json(handed_on),
                                                       worker.role, worker.index, worker.setup.options_of(worker.id));
    EXPECT_EQ(broadcaster->rank(), worker.id);
    TensorMapSink sink;
    sync_sample(*broadcaster, worker, sink, 5);
  });
}

TEST(WeightBroadcasterTest, NoWeightsAreASuccessUnlessRefused) {
  run_workers_as_threads({{"a", "a"}, {"b"}, quick_options()}, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorListSource source({});
    TensorMapSink sink;
    const SyncReport report = worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink);
    EXPECT_EQ(report.num_weights, 0U);
    EXPECT_EQ(broadcaster->version(), 0);
  });
  SyncSetup refusing;
  refusing.options.refuse_empty = true;
  run_workers_as_threads(refusing, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorListSource source({});
    TensorMapSink sink;
    EXPECT_THROW(worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink), SyncError);
  });
}

TEST(WeightBroadcasterTest, PerWeightDigestsTellWhatChanged) {
  SyncSetup setup;
  setup.options.integrity = Integrity::weight;
  run_workers_as_threads(setup, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    std::vector<NamedParameter> weights = sample_weights(0);
    TensorMapSink sink;
    const auto sync = [&] {
      TensorListSource source(weights);
      return worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink);
    };
    EXPECT_FALSE(sync().num_changed);
    EXPECT_EQ(sync().num_changed, 0U);
    weights[2].tensor = weights[2].tensor + 1;
    weights[5].tensor = weights[5].tensor + 1;
    EXPECT_EQ(sync().num_changed, 2U);
  });
}

TEST(WeightBroadcasterTest, TheWrongCallForTheRoleSaysSo) {
  run_workers_as_threads({}, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorListSource source({});
    TensorMapSink sink;
    try {
      worker.is_actor() ? broadcaster->receive(sink) : broadcaster->send(source);
      ADD_FAILURE() << "accepted";
    } catch (const LogicError& error) {
      EXPECT_THAT(error.what(), HasSubstr("actors call send(), rollouts call receive()"));
    }
    broadcaster->finalize();
    EXPECT_THROW(worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink), LogicError);
  });
}

TEST(WeightBroadcasterTest, AForkedChildNeitherSyncsNorHangs) {
  // One worker's constructor meets nobody when a driver has laid out the topology.
  const auto actor = WeightBroadcaster::metadata(WorkerRole::actor, 0, 1, quick_options());
  const auto rollout = WeightBroadcaster::metadata(WorkerRole::rollout, 0, 1, quick_options());
  auto broadcaster =
      WeightBroadcaster::create(c10::make_intrusive<c10d::HashStore>(), build_topology({actor}, {rollout}),
                                WorkerRole::actor, 0, quick_options());
  const test::ForkedChild child = test::run_forked([&] {
    TensorListSource source({});
    try {
      broadcaster->send(source);
      return 1;
    } catch (const SyncError& error) {
      if (error.kind() != CommErrorKind::forked) return 2;
    }
    broadcaster.reset();
    return 0;
  });
  EXPECT_FALSE(child.hung);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(WeightBroadcasterTest, OptionsThatMakeNoSenseAreRefusedBeforeAnybodyWaits) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto refusal = [&](const std::function<void(BroadcastOptions&)>& change) -> std::string {
    BroadcastOptions options = quick_options();
    change(options);
    try {
      WeightBroadcaster::create(store, BroadcastRole::actor(0, 1, 1), options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.bucket_bytes = 63; }), HasSubstr("bucket_bytes is 63"));
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.chunk_bytes = 0; }), HasSubstr("chunk_bytes"));
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.depth = 0; }), HasSubstr("depth is 0"));
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.timeout = std::chrono::milliseconds(0); }), HasSubstr("timeout"));
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.name = "a/b"; }), HasSubstr("a/b"));
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.transport = "pigeons"; }), HasSubstr("pigeons"));
  EXPECT_THAT(refusal([](BroadcastOptions& o) { o.interface = "eth99"; }), HasSubstr("eth99"));
  EXPECT_THROW(WeightBroadcaster::create(store, BroadcastRole::actor(1, 1, 1), quick_options()), ConfigError);
  EXPECT_THROW(WeightBroadcaster::create({}, BroadcastRole::actor(0, 1, 1), quick_options()), ConfigError);
}

// Of code, page and header the page is read, since only it could say something else.
TEST(WeightBroadcasterTest, ThePageSaysTheDefaultsThatAre) {
  const char* folder = std::getenv("DBG_TEST_SOURCE_DIR");
  ASSERT_NE(folder, nullptr);
  const auto text_of = [&](const std::string& name) {
    std::ifstream file(std::string(folder) + "/" + name);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  };
  const std::string page = text_of("docs/weight_broadcaster.md");
  const BroadcastOptions defaults;
  EXPECT_TRUE(defaults.multi_sender);
  EXPECT_EQ(defaults.multi_sender, WorkerMetadata().multi_sender);
  const auto row = [&](const std::string& option, const std::string& value) {
    EXPECT_THAT(page, HasSubstr(formatted("| `{}` | {} |", option, value)));
  };
  row("multi_sender", defaults.multi_sender ? "`true`" : "`false`");
  EXPECT_THAT(text_of("README.md"), HasSubstr("(`multi_sender` is `true` by default)"));
  row("rebuild_group", defaults.rebuild_group ? "`true`" : "`false`");
  row("refuse_empty", defaults.refuse_empty ? "`true`" : "`false`");
  row("name", formatted("`\"{}\"`", defaults.name));
  row("transport", formatted("`\"{}\"`", defaults.transport));
  row("key_prefix", formatted("`\"{}\"`", defaults.key_prefix));
  row("depth", formatted("`{}`", defaults.depth));
  row("bucket_bytes", formatted("{} MiB", defaults.bucket_bytes >> 20));
  row("chunk_bytes", formatted("{} KiB", defaults.chunk_bytes >> 10));
  row("timeout", formatted("{} min", std::chrono::duration_cast<std::chrono::minutes>(defaults.timeout).count()));
  row("integrity", defaults.integrity == Integrity::bucket ? "`bucket`" : "another");
}

TEST(WeightBroadcasterTest, OneLineSaysWhoSends) {
  const test::LogCapture log;
  run_workers_as_threads({{"a", "b", "a"}, {"c", "c"}, quick_options()}, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    const std::vector<std::string> parts{"actor 0 on node a: root, rank 0 of 4; 2 of 3 actors send, world_size 4",
                                         "sends nothing", "relay, rank 1 of 4", "consumer, rank 2 of 4",
                                         "consumer, rank 3 of 4"};
    EXPECT_THAT(broadcaster->describe(), HasSubstr(parts[static_cast<std::size_t>(worker.id)]));
  });
  EXPECT_EQ(log.count("2 of 3 actors send, world_size 4"), 1U);
}

// The source's next() is an all-reduce among all actors, one that sends nothing among them, and each bucket is one
// weight.
TEST(WeightBroadcasterTest, ASourceThatIsACollective) {
  SyncSetup setup{{"a", "c", "a"}, {"b", "b"}, quick_options()};
  setup.options.bucket_bytes = 64;
  setup.options.chunk_bytes = 64;
  run_workers_as_threads(setup, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    std::vector<NamedParameter> expected;
    for (int i = 0; i < 20; ++i) expected.push_back({formatted("w{}", i), at::full({16}, 3.0 * i + 3, at::kFloat)});
    if (!worker.is_actor()) {
      TensorMapSink sink;
      broadcaster->receive(sink);
      test::expect_version(sink, expected);
      return;
    }
    WorldOptions options;
    options.key_prefix = "actors";
    options.interface = "lo";
    const World world = World::create(worker.store, worker.index, 3, options);
    const auto group = GroupCoordinator::create(world, {{0, 1, 2}}, {.group_name = "dp", .device_backend = "gloo"});
    std::vector<NamedParameter> own;
    for (int i = 0; i < 20; ++i)
      own.push_back({formatted("w{}", i), at::full({16}, 1.0 * i + worker.index, at::kFloat)});
    ScratchSource source(own, [&](std::size_t number) {
      if (number < own.size()) group->all_reduce(own[number].tensor);
    });
    broadcaster->send(source);
    group->close();
  });
}

TEST(WeightBroadcasterTest, ASlowConsumerHoldsNoMoreThanDepth) {
  SyncSetup setup{{"a"}, {"b", "b"}, quick_options()};
  setup.options.bucket_bytes = 1024;
  setup.options.depth = 2;
  std::atomic<int> handed_out{0};
  std::atomic<int> taken{0};
  std::atomic<int> most_ahead{0};
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    std::vector<NamedParameter> weights;
    for (int i = 0; i < 60; ++i) weights.push_back({formatted("w{}", i), at::full({256}, 1.0 * i, at::kFloat)});
    if (worker.is_actor()) {
      ScratchSource source(weights, [&](std::size_t) {
        const int ahead = ++handed_out - taken;
        most_ahead = std::max(most_ahead.load(), ahead);
      });
      broadcaster->send(source);
      return;
    }
    test::HookedSink sink([&](const WeightInfo&) {
      if (worker.index != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // being slow is what is tested
      ++taken;
    });
    const SyncReport report = broadcaster->receive(sink);
    EXPECT_LE(report.most_buckets_in_use, 2U);
    test::expect_version(sink, weights);
  });
  // Two at the sender, two at the consumer, one being filled and one being taken.
  EXPECT_LE(most_ahead.load(), 6);
}

}  // namespace
}  // namespace dbg
