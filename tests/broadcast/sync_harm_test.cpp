// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Harm on the wire, done by something that stands before a rank's transport: damage, headers that differ, stale peers,
// a backend that does not return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "broadcast/broadcaster_impl.h"
#include "broadcast/failing_syncs.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::one_cause;
using test::quick_options;
using test::run_workers_as_threads;
using test::sample_weights;
using test::ScratchSource;
using test::sync_well;
using test::SyncSetup;
using test::Worker;
using testing::AllOf;
using testing::HasSubstr;

// Stands before a rank's transport and does harm.
class HarmfulTransport : public broadcast::Transport {
 public:
  explicit HarmfulTransport(std::shared_ptr<broadcast::Transport> inner) : inner_(std::move(inner)) {}
  void control(broadcast::ControlMessage& message) override { inner_->control(message); }
  std::uint64_t memory_for(std::uint64_t length) const override { return inner_->memory_for(length); }
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    return inner_->payload(memory, length);
  }
  bool advance() override { return inner_->advance(); }
  std::uint64_t finished_below() const override { return inner_->finished_below(); }
  void finish(std::uint64_t number) override { inner_->finish(number); }
  std::uint64_t sent_bytes() const override { return inner_->sent_bytes(); }

 protected:
  std::shared_ptr<broadcast::Transport> inner_;
};

class CorruptingTransport : public HarmfulTransport {
 public:
  using HarmfulTransport::HarmfulTransport;
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    const std::uint64_t number = inner_->payload(memory, length);
    if (number == 3) static_cast<std::uint8_t*>(memory.mutable_data_ptr())[length / 2] ^= 0x10;
    return number;
  }
};

TEST(SyncHarmTest, ACorruptedPayloadIsNamedWithItsDigestsAndNotCommitted) {
  const CommFailure failure = one_cause({{"a"}, {"b", "c"}, quick_options()},
                                        [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
                                          if (worker.id == 2) {
                                            broadcaster.impl().wrap_transport = [](auto inner) {
                                              return std::make_shared<CorruptingTransport>(inner);
                                            };
                                          }
                                          const auto restore = [&] { broadcaster.impl().wrap_transport = nullptr; };
                                          try {
                                            sync_well(broadcaster, worker, sink, 2);
                                          } catch (...) {
                                            restore();
                                            throw;
                                          }
                                        });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("rollout 1 on node c"), HasSubstr("bucket 3 was damaged"),
                                   HasSubstr("digest"), HasSubstr("'large'")));
}

// A relay that cuts one byte later than the root, which the header's comparison has to find before the payload.
class ShiftingTransport : public HarmfulTransport {
 public:
  using HarmfulTransport::HarmfulTransport;
  void control(broadcast::ControlMessage& message) override {
    inner_->control(message);
    if (message.header.kind == broadcast::MessageKind::bucket && message.header.bucket == 2) ++message.header.length;
  }
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    ++payloads;
    return inner_->payload(memory, length);
  }
  int payloads = 0;
};

TEST(SyncHarmTest, AHeaderThatDiffersIsFoundBeforeThePayload) {
  std::shared_ptr<ShiftingTransport> shifting;
  const CommFailure failure = one_cause({{"a", "a"}, {"b"}, quick_options()},
                                        [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
                                          if (worker.id == 1) {
                                            broadcaster.impl().wrap_transport = [&](auto inner) {
                                              return shifting = std::make_shared<ShiftingTransport>(inner);
                                            };
                                          }
                                          try {
                                            sync_well(broadcaster, worker, sink, 2);
                                          } catch (...) {
                                            broadcaster.impl().wrap_transport = nullptr;
                                            throw;
                                          }
                                        });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("bucket 2: the length is"), HasSubstr("actor 1 on node a")));
  ASSERT_TRUE(shifting);
  EXPECT_EQ(shifting->payloads, 2);
}

// A message of an earlier sync in the pipe.
class StaleTransport : public HarmfulTransport {
 public:
  using HarmfulTransport::HarmfulTransport;
  void control(broadcast::ControlMessage& message) override {
    if (message.header.bucket == 1) message.header.generation -= 1;
    inner_->control(message);
  }
};

TEST(SyncHarmTest, AStalePeerIsShownWithBothGenerations) {
  const CommFailure failure =
      one_cause({}, [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
        if (worker.id == 0) {
          broadcaster.impl().wrap_transport = [](auto inner) { return std::make_shared<StaleTransport>(inner); };
        }
        try {
          sync_well(broadcaster, worker, sink, 2);
        } catch (...) {
          broadcaster.impl().wrap_transport = nullptr;
          throw;
        }
      });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("generation 0"), HasSubstr("generation 1")));
}

// A backend that does not come back when it is told to abort.
class StuckTransport : public HarmfulTransport {
 public:
  using HarmfulTransport::HarmfulTransport;
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    is_stuck = true;
    std::this_thread::sleep_for(seconds(3));  // it ends at last, after the test's own deadlines
    return inner_->payload(memory, length);
  }
  static std::atomic<bool> is_stuck;
};

std::atomic<bool> StuckTransport::is_stuck{false};

TEST(SyncHarmTest, AnAbortThatDoesNotReturnHasASecondDeadline) {
  SyncSetup setup;
  setup.options.depth = 20;  // the source is never kept waiting
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.is_actor()) {
      broadcaster->impl().wrap_transport = [](auto inner) { return std::make_shared<StuckTransport>(inner); };
      broadcaster->impl().second_deadline = milliseconds(300);
      ScratchSource source(sample_weights(1), [](std::size_t number) {
        const auto deadline = std::chrono::steady_clock::now() + seconds(10);
        while (number == 9 && !StuckTransport::is_stuck && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(milliseconds(1));
        }
        if (number == 9) throw std::runtime_error("source gone");
      });
      const CommFailure failure = test::failure_of_sync([&] { broadcaster->send(source); }, milliseconds(2500));
      EXPECT_THAT(failure.cause, HasSubstr("source gone"));
      EXPECT_THAT(failure.advice, HasSubstr("end this process"));
      return;
    }
    TensorMapSink sink;
    const CommFailure failure = test::failure_of_sync([&] { broadcaster->receive(sink); }, milliseconds(2500));
    EXPECT_THAT(failure.cause, HasSubstr("source gone"));
  });
  std::this_thread::sleep_for(seconds(3));  // the thread that was left behind ends before the test's statics go
}

}  // namespace
}  // namespace dbg
