// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Who waits for whom: failures before there is a group, wires slower than the timeout, actors ahead of the root, what
// has to be compared before a rank is ready, and what a consumer says of itself meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "broadcast/broadcaster_impl.h"
#include "broadcast/failing_syncs.h"
#include "broadcast/forwarding_transport.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::Causes;
using test::ForwardingTransport;
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
using testing::HasSubstr;

// Waits until a condition of the test holds, which it may never do where the code is wrong.
template <class Condition>
void wait_until(const Condition& condition, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (!condition() && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
}

std::vector<NamedParameter> one_a_bucket(int count) {
  std::vector<NamedParameter> weights;
  for (int i = 0; i < count; ++i) weights.push_back({formatted("w{}", i), at::full({1024}, 1.0 * i, at::kFloat)});
  return weights;
}

class BeginlessSource : public ScratchSource {
 public:
  BeginlessSource() : ScratchSource(sample_weights(1)) {}
  void begin() override { throw std::runtime_error("no optimizer yet"); }
};

TEST(SyncPaceTest, AFailureInAFirstSyncIsHeardAtOnceThoughThereIsNoGroup) {
  for (const bool rebuild : {false, true}) {
    for (const int culprit : {0, 1, 2}) {
      SyncSetup setup = three_actors_two_consumers();  // with a timeout of 20 s
      setup.options.rebuild_group = rebuild;
      Causes causes;
      run_workers_as_threads(setup, [&](const Worker& worker) {
        const auto broadcaster = worker.make();
        TensorMapSink sink;
        BeginlessSource beginless;
        if (rebuild) sync_sample(*broadcaster, worker, sink, 1);
        causes.add(worker.id, test::failure_of_sync(
                                  [&] {
                                    if (worker.id != culprit) return sync_well(*broadcaster, worker, sink, 2);
                                    broadcaster->send(beginless);
                                  },
                                  seconds(8)));
        EXPECT_EQ(beginless.pulls(), 0);  // what did not begin is not driven
        sync_sample(*broadcaster, worker, sink, 3);
      });
      EXPECT_THAT(causes.only(setup.size()).cause,
                  AllOf(HasSubstr(formatted("actor {}", culprit)), HasSubstr("no optimizer yet")));
    }
  }
}

TEST(SyncPaceTest, AFailureWhileTheGroupIsBeingMadeIsHeardAtOnce) {
  for (const bool rebuild : {false, true}) {
    SyncSetup setup = three_actors_two_consumers();  // with a timeout of 20 s
    setup.options.rebuild_group = rebuild;
    Causes causes;
    run_workers_as_threads(setup, [&](const Worker& worker) {
      const auto broadcaster = worker.make();
      TensorMapSink sink;
      if (rebuild) sync_sample(*broadcaster, worker, sink, 1);
      // The relay compares its list when the others connect already, and never comes to that.
      causes.add(worker.id, test::failure_of_sync(
                                [&] {
                                  if (!worker.is_actor()) {
                                    broadcaster->receive(sink);
                                    return;
                                  }
                                  auto weights = sample_weights(2);
                                  if (worker.id == 1) weights.pop_back();
                                  TensorListSource source(weights);
                                  broadcaster->send(source, 2);
                                },
                                seconds(8)));
      sync_sample(*broadcaster, worker, sink, 3);
    });
    EXPECT_THAT(causes.only(setup.size()).cause, HasSubstr("the root lists 19 weights"));
  }
}

class SlowTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    std::this_thread::sleep_for(milliseconds(180));  // being slow is what is tested
    return inner_->payload(memory, length);
  }
};

TEST(SyncPaceTest, TheTimeoutIsNoLimitOfTheWholeSync) {
  SyncSetup setup = three_actors_two_consumers();
  setup.options.timeout = seconds(2);
  run_workers_as_threads(setup, [](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.id == 0) {
      impl_of(*broadcaster).wrap_transport = [](auto inner) { return std::make_shared<SlowTransport>(inner); };
    }
    TensorMapSink sink;
    const auto weights = one_a_bucket(14);
    TensorListSource source(weights);
    const SyncReport report = worker.is_actor() ? broadcaster->send(source, 4) : broadcaster->receive(sink);
    EXPECT_EQ(report.num_weights, 14U);
    EXPECT_EQ(broadcaster->version(), 4);
    if (!worker.is_actor()) test::expect_version(sink, weights);
  });
}

// Counts how often a message is waited for while the bucket after its own is not full yet.
class IdleWireTransport : public ForwardingTransport {
 public:
  IdleWireTransport(std::shared_ptr<broadcast::Transport> inner, const std::atomic<int>& asked_for,
                    std::atomic<int>& idle)
      : ForwardingTransport(std::move(inner)), asked_for_(asked_for), idle_(idle) {}
  bool advance() override {
    const int on_its_way = static_cast<int>(inner_->finished_below());
    // Once the source is asked for weight k + 2, bucket k + 1 is full.
    if (asked_for_ < std::min(on_its_way + 2, kCount)) ++idle_;
    return inner_->advance();
  }
  static constexpr int kCount = 12;

 private:
  const std::atomic<int>& asked_for_;
  std::atomic<int>& idle_;
};

TEST(SyncPaceTest, TheSourceGoesOnWhileABucketIsOnItsWay) {
  for (const bool multi_sender : {true, false}) {
    SyncSetup setup = three_actors_two_consumers();
    setup.options.multi_sender = multi_sender;
    std::atomic<int> asked_for{-1};
    std::atomic<int> idle{0};
    run_workers_as_threads(setup, [&](const Worker& worker) {
      const auto broadcaster = worker.make();
      if (worker.id == 0) {
        impl_of(*broadcaster).wrap_transport = [&](auto inner) {
          return std::make_shared<IdleWireTransport>(inner, asked_for, idle);
        };
      }
      TensorMapSink sink;
      const auto weights = one_a_bucket(IdleWireTransport::kCount);
      ScratchSource source(weights, [&](std::size_t number) {
        if (worker.id == 0) asked_for = static_cast<int>(number);
      });
      worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink);
      if (!worker.is_actor()) test::expect_version(sink, weights);
    });
    EXPECT_EQ(idle.load(), 0) << multi_sender;
  }
}

TEST(SyncPaceTest, NoActorRunsFarAheadOfTheRoot) {
  std::atomic<int> pulled_by_relay{0};
  std::atomic<int> pulled_by_idle{0};
  run_workers_as_threads(three_actors_two_consumers(), [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    TensorMapSink sink;
    std::atomic<int>* const own = worker.id == 1 ? &pulled_by_relay : worker.id == 2 ? &pulled_by_idle : nullptr;
    const auto failure = test::failure_of_sync(
        [&] {
          if (!worker.is_actor()) {
            broadcaster->receive(sink);
            return;
          }
          ScratchSource source(one_a_bucket(200), [&](std::size_t number) {
            if (own != nullptr) ++*own;
            if (worker.id != 0 || number != 3) return;
            wait_until([&] { return pulled_by_relay > 150 && pulled_by_idle > 150; }, milliseconds(500));
            throw std::runtime_error("the root's is gone");
          });
          broadcaster->send(source);
        },
        seconds(8));
    EXPECT_THAT(failure.cause, HasSubstr("the root's is gone"));
  });
  // Three of the root's, two buckets ahead of it, the one in hand.
  EXPECT_LE(pulled_by_relay.load(), 8);
  EXPECT_LE(pulled_by_idle.load(), 8);
}

// Notes whether memory is handed out again whose last payload is not out yet.
class MemoryWatchingTransport : public ForwardingTransport {
 public:
  MemoryWatchingTransport(std::shared_ptr<broadcast::Transport> inner, bool is_slow, std::atomic<int>& reused)
      : ForwardingTransport(std::move(inner)), is_slow_(is_slow), reused_(reused) {}
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    const auto found = last_.find(memory.const_data_ptr());
    if (found != last_.end() && found->second >= inner_->finished_below()) ++reused_;
    if (is_slow_) std::this_thread::sleep_for(milliseconds(20));  // being slow is what is tested
    return last_[memory.const_data_ptr()] = inner_->payload(memory, length);
  }

 private:
  const bool is_slow_;
  std::atomic<int>& reused_;
  std::map<const void*, std::uint64_t> last_;
};

TEST(SyncPaceTest, ABucketsMemoryIsNotUsedAgainBeforeItsMessagesAreOut) {
  std::atomic<int> reused{0};
  SyncSetup setup{{"a", "a"}, {"b", "c"}, quick_options()};
  setup.options.bucket_bytes = 1 << 20;  // more than sockets hold
  setup.options.chunk_bytes = 1 << 18;
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    impl_of(*broadcaster).wrap_transport = [&](auto inner) {
      return std::make_shared<MemoryWatchingTransport>(inner, worker.id == 3, reused);
    };
    std::vector<NamedParameter> weights;
    for (int i = 0; i < 12; ++i) weights.push_back({formatted("w{}", i), at::full({1 << 18}, 1.0 * i, at::kFloat)});
    TensorMapSink sink;
    ScratchSource source(weights);
    worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink);
    if (!worker.is_actor()) test::expect_version(sink, weights);
  });
  EXPECT_EQ(reused.load(), 0);
}

std::atomic<bool> has_committed{false};

// Sees the root's last word late.
class LateTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void control(broadcast::ControlMessage& message) override {
    inner_->control(message);
    if (message.header.kind != broadcast::MessageKind::commit) return;
    wait_until([] { return has_committed.load(); }, milliseconds(700));
  }
};

class CommittingSink : public TensorMapSink {
 public:
  void commit(std::int64_t version) override {
    has_committed = true;
    TensorMapSink::commit(version);
  }
};

TEST(SyncPaceTest, ARelayIsNotReadyBeforeItComparedTheEnd) {
  has_committed = false;
  Causes causes;
  run_workers_as_threads({{"a", "a"}, {"b"}, quick_options()}, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.id == 1) {
      impl_of(*broadcaster).wrap_transport = [](auto inner) { return std::make_shared<LateTransport>(inner); };
    }
    CommittingSink sink;
    causes.add(worker.id, test::failure_of_sync(
                              [&] {
                                auto weights = one_a_bucket(4);
                                if (worker.id == 1) weights.push_back({"extra", at::ones({1024})});
                                ScratchSource source(weights);
                                worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink);
                              },
                              seconds(8)));
  });
  EXPECT_FALSE(has_committed);
  EXPECT_THAT(causes.only(3).cause, AllOf(HasSubstr("actor 1 on node a"), HasSubstr("'extra'")));
}

// Gets its last bucket late, and damaged.
class LateDamagingTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    const std::uint64_t number = inner_->payload(memory, length);
    if (number == 3) {
      wait_until([] { return has_committed.load(); }, milliseconds(700));
      static_cast<std::uint8_t*>(memory.mutable_data_ptr())[0] ^= 1;
    }
    return number;
  }
};

TEST(SyncPaceTest, AConsumerIsNotReadyBeforeItComparedTheLastDigest) {
  has_committed = false;
  Causes causes;
  run_workers_as_threads({{"a"}, {"b", "c"}, quick_options()}, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.id == 2) {
      impl_of(*broadcaster).wrap_transport = [](auto inner) { return std::make_shared<LateDamagingTransport>(inner); };
    }
    CommittingSink sink;
    causes.add(worker.id, test::failure_of_sync(
                              [&] {
                                ScratchSource source(one_a_bucket(4));
                                worker.is_actor() ? broadcaster->send(source) : broadcaster->receive(sink);
                              },
                              seconds(8)));
    EXPECT_EQ(broadcaster->version(), -1);
  });
  EXPECT_FALSE(has_committed);
  EXPECT_THAT(causes.only(3).cause, AllOf(HasSubstr("rollout 1 on node c"), HasSubstr("bucket 3 was damaged")));
}

// Fails at its last message, when all is committed.
class LateFailingTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void control(broadcast::ControlMessage& message) override {
    inner_->control(message);
    has_ended_ = message.header.kind == broadcast::MessageKind::commit;
  }
  bool advance() override {
    if (!has_ended_) return inner_->advance();
    wait_until([] { return has_committed.load(); }, seconds(10));
    throw broadcast::WireError(CommErrorKind::peer_lost, 1, "gone");
  }

 private:
  bool has_ended_ = false;
};

TEST(SyncPaceTest, AGroupWhoseWireFailedAfterTheCommitIsNotUsedAgain) {
  has_committed = false;
  run_workers_as_threads({}, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.id == 0) {
      impl_of(*broadcaster).wrap_transport = [](auto inner) { return std::make_shared<LateFailingTransport>(inner); };
    }
    CommittingSink sink;
    sync_sample(*broadcaster, worker, sink, 1);
    impl_of(*broadcaster).wrap_transport = nullptr;
    EXPECT_TRUE(sync_sample(*broadcaster, worker, sink, 2).group_was_made);
    EXPECT_FALSE(sync_sample(*broadcaster, worker, sink, 3).group_was_made);
  });
}

class WatchedSink : public TensorListSink {
 public:
  using TensorListSink::TensorListSink;
  void take(const WeightInfo& weight, const at::Tensor& tensor, bool is_view) override {
    torn_in_take = torn_in_take && broadcaster->is_torn();
    TensorListSink::take(weight, tensor, is_view);
  }
  void commit(std::int64_t version) override {
    torn_in_commit = broadcaster->is_torn();
    TensorListSink::commit(version);
  }
  const WeightBroadcaster* broadcaster = nullptr;
  bool torn_in_take = true;
  bool torn_in_commit = false;
};

TEST(SyncPaceTest, AModelIsTornWhileItIsWrittenTo) {
  for (const WeightSink::Mode mode : {WeightSink::Mode::in_place, WeightSink::Mode::staged}) {
    run_workers_as_threads({}, [&](const Worker& worker) {
      const auto broadcaster = worker.make();
      std::vector<NamedParameter> places;
      for (const NamedParameter& weight : sample_weights(0)) {
        places.push_back({weight.name, at::zeros(weight.tensor.sizes(), weight.tensor.options().requires_grad(false))});
      }
      if (worker.is_actor()) {
        TensorListSource source(sample_weights(1));
        broadcaster->send(source);
        return;
      }
      WatchedSink sink(places, mode);
      sink.broadcaster = broadcaster.get();
      broadcaster->receive(sink);
      EXPECT_EQ(sink.torn_in_take, mode == WeightSink::Mode::in_place);
      EXPECT_TRUE(sink.torn_in_commit);
      EXPECT_FALSE(broadcaster->is_torn());
    });
  }
}

class ModelessSink : public TensorMapSink {
 public:
  Mode mode() const override { throw std::runtime_error("which mode?"); }
};

TEST(SyncPaceTest, ASinkThatDoesNotSayItsModeFailsOnAll) {
  Causes causes;
  run_workers_as_threads({}, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    ModelessSink sink;
    causes.add(worker.id, test::failure_of_sync([&] { sync_well(*broadcaster, worker, sink, 1); }, seconds(8)));
  });
  EXPECT_THAT(causes.only(2).cause, HasSubstr("which mode?"));
}

}  // namespace
}  // namespace dbg
