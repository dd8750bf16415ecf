// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Harm on the wire, done by something that stands before a rank's transport: damage, headers that differ, stale peers,
// a backend that does not return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "broadcast/broadcaster_impl.h"
#include "broadcast/failing_syncs.h"
#include "broadcast/forwarding_transport.h"

namespace dbg {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ForwardingTransport;
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

class CorruptingTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
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
                                            impl_of(broadcaster).wrap_transport = [](auto inner) {
                                              return std::make_shared<CorruptingTransport>(inner);
                                            };
                                          }
                                          const auto restore = [&] { impl_of(broadcaster).wrap_transport = nullptr; };
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
class ShiftingTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
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
                                            impl_of(broadcaster).wrap_transport = [&](auto inner) {
                                              return shifting = std::make_shared<ShiftingTransport>(inner);
                                            };
                                          }
                                          try {
                                            sync_well(broadcaster, worker, sink, 2);
                                          } catch (...) {
                                            impl_of(broadcaster).wrap_transport = nullptr;
                                            throw;
                                          }
                                        });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("bucket 2: the length is"), HasSubstr("actor 1 on node a")));
  ASSERT_TRUE(shifting);
  EXPECT_EQ(shifting->payloads, 2);
}

// A message of an earlier sync in the pipe.
class StaleTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void control(broadcast::ControlMessage& message) override {
    if (message.header.bucket == 1) message.header.generation -= 1;
    inner_->control(message);
  }
};

TEST(SyncHarmTest, AStalePeerIsShownWithBothGenerations) {
  const CommFailure failure =
      one_cause({}, [&](WeightBroadcaster& broadcaster, const Worker& worker, TensorMapSink& sink) {
        if (worker.id == 0) {
          impl_of(broadcaster).wrap_transport = [](auto inner) { return std::make_shared<StaleTransport>(inner); };
        }
        try {
          sync_well(broadcaster, worker, sink, 2);
        } catch (...) {
          impl_of(broadcaster).wrap_transport = nullptr;
          throw;
        }
      });
  EXPECT_THAT(failure.cause, AllOf(HasSubstr("generation 0"), HasSubstr("generation 1")));
}

// A backend that does not come back when it is told to abort, until the test lets it.
class StuckTransport : public ForwardingTransport {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_inside = false;
    bool may_go_on = false;
    bool has_ended = false;       // the transport is gone
    bool was_taken_away = false;  // while it was still being called
    bool wait_for(bool State::*what, milliseconds limit) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, limit, [&] { return this->*what; });
    }
    void set(bool State::*what) {
      const std::lock_guard lock(mutex);
      this->*what = true;
      changed.notify_all();
    }
  };

  StuckTransport(std::shared_ptr<broadcast::Transport> inner, std::shared_ptr<State> state)
      : ForwardingTransport(std::move(inner)), state_(std::move(state)) {}
  ~StuckTransport() override {
    const std::lock_guard lock(state_->mutex);
    state_->was_taken_away = state_->is_inside;
    state_->has_ended = true;
    state_->changed.notify_all();
  }
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override {
    const std::shared_ptr<State> state = state_;
    const std::shared_ptr<broadcast::Transport> inner = inner_;
    state->set(&State::is_inside);
    state->wait_for(&State::may_go_on, seconds(20));
    {
      const std::lock_guard lock(state->mutex);
      state->is_inside = false;
    }
    return inner->payload(memory, length);
  }

 private:
  std::shared_ptr<State> state_;
};

TEST(SyncHarmTest, AnAbortThatDoesNotReturnHasASecondDeadlineAndKeepsWhatItUses) {
  using State = StuckTransport::State;
  const auto state = std::make_shared<State>();
  SyncSetup setup;
  setup.options.depth = 20;  // the source is never kept waiting
  run_workers_as_threads(setup, [&](const Worker& worker) {
    const auto broadcaster = worker.make();
    if (worker.is_actor()) {
      impl_of(*broadcaster).wrap_transport = [&](auto inner) { return std::make_shared<StuckTransport>(inner, state); };
      impl_of(*broadcaster).second_deadline = milliseconds(300);
      ScratchSource source(sample_weights(1), [&](std::size_t number) {
        if (number != 9) return;
        state->wait_for(&State::is_inside, seconds(10));
        throw std::runtime_error("source gone");
      });
      const CommFailure failure = test::failure_of_sync([&] { broadcaster->send(source); }, milliseconds(4000));
      EXPECT_THAT(failure.cause, HasSubstr("source gone"));
      EXPECT_THAT(failure.advice, HasSubstr("end this process"));
      broadcaster->finalize();
      return;
    }
    TensorMapSink sink;
    const CommFailure failure = test::failure_of_sync([&] { broadcaster->receive(sink); }, milliseconds(4000));
    EXPECT_THAT(failure.cause, HasSubstr("source gone"));
  });
  // The thread that was left behind comes back to what it had, and only then that goes.
  EXPECT_FALSE(state->has_ended);
  state->set(&State::may_go_on);
  EXPECT_TRUE(state->wait_for(&State::has_ended, seconds(20)));
  EXPECT_FALSE(state->was_taken_away);
}

}  // namespace
}  // namespace dbg
