// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The scheduler of NCCL's calls against a table that records them, on a CPU: order, exact lengths, what is found before
// anything is enqueued, deadlines, signals. And the real calls, where a GPU is.
#include "broadcast/nccl_transport.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/nccl_backend.h"

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Writes down what is called; marks are done when the test says so.
class RecordedCalls : public NcclCalls {
 public:
  void* allocate(std::uint64_t size) override {
    log.push_back(formatted("allocate {}", size));
    memory.push_back(std::make_unique<std::byte[]>(size));
    return memory.back().get();
  }
  void copy_in(void* device, const void*, std::uint64_t size) override {
    log.push_back(formatted("in {} to {}", size, slot(device)));
  }
  void copy_out(void*, const void* device, std::uint64_t size) override {
    log.push_back(formatted("out {} from {}", size, slot(device)));
  }
  void broadcast(void* device, std::uint64_t size) override {
    log.push_back(formatted("broadcast {} of {}", size, slot(device)));
  }
  std::uint64_t record() override {
    log.push_back(formatted("mark {}", marks));
    return marks++;
  }
  bool is_done(std::uint64_t mark) override {
    if (mark >= done_below && !everything_is_done) return false;
    log.push_back(formatted("done {}", mark));
    return true;
  }
  void set_signal(std::shared_ptr<distributed::AbortSignal>) override {}
  void abort() noexcept override { ++aborts; }

  std::size_t slot(const void* device) const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (memory[i].get() == device) return i;
    }
    return 99;
  }

  std::vector<std::string> log;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::uint64_t marks = 0;
  std::uint64_t done_below = 0;
  bool everything_is_done = false;
  int aborts = 0;
};

// Stands for gloo: what the root would have sent.
class SilentHeaders : public Transport {
 public:
  void control(ControlMessage&) override { ++controls; }
  std::uint64_t memory_for(std::uint64_t) const override { return 0; }
  std::uint64_t payload(const at::Tensor&, std::uint64_t) override { return 0; }
  bool advance() override { return false; }
  std::uint64_t finished_below() const override { return 0; }
  void finish(std::uint64_t) override {}
  std::uint64_t sent_bytes() const override { return 100; }
  int controls = 0;
};

struct Made {
  std::shared_ptr<RecordedCalls> calls = std::make_shared<RecordedCalls>();
  std::vector<void*> memory;
  std::unique_ptr<NcclTransport> transport;

  Made(int rank, int senders, milliseconds timeout = milliseconds(200),
       std::shared_ptr<distributed::AbortSignal> signal = {}) {
    NcclTransportOptions options;
    options.rank = rank;
    options.num_senders = senders;
    options.bucket_bytes = 1024;
    options.timeout = timeout;
    options.signal = std::move(signal);
    transport = std::make_unique<NcclTransport>(std::make_shared<SilentHeaders>(), calls, memory, options);
    calls->log.clear();
  }
};

at::Tensor host() {
  return at::zeros({1024}, at::kByte);
}

TEST(NcclTransportTest, TheRootFillsOneSlotWhileTheOtherIsOnItsWay) {
  Made root(0, 1);
  root.transport->payload(host(), 1000);
  root.transport->payload(host(), 7);
  EXPECT_THAT(root.calls->log,
              ElementsAre("in 1000 to 0", "broadcast 1000 of 0", "mark 0", "in 7 to 1", "broadcast 7 of 1", "mark 1"));
  EXPECT_EQ(root.transport->finished_below(), 0U);
  root.calls->log.clear();
  root.calls->done_below = 1;
  root.transport->payload(host(), 64);  // the first slot again, once its broadcast is done
  EXPECT_THAT(root.calls->log, ElementsAre("done 0", "in 64 to 0", "broadcast 64 of 0", "mark 2"));
  root.calls->everything_is_done = true;
  root.transport->finish(2);
  EXPECT_EQ(root.transport->finished_below(), 3U);
  EXPECT_FALSE(root.transport->advance());
  EXPECT_EQ(root.transport->sent_bytes(), 100U + 1071U);
}

TEST(NcclTransportTest, AConsumerHasItsValuesWhenThePayloadReturns) {
  Made consumer(2, 2);
  consumer.calls->everything_is_done = true;
  EXPECT_EQ(consumer.transport->payload(host(), 500), 0U);
  // Copied once the broadcast is through, so that no copy waits for a peer.
  EXPECT_THAT(consumer.calls->log,
              ElementsAre("broadcast 500 of 0", "mark 0", "done 0", "out 500 from 0", "mark 1", "done 1"));
  EXPECT_EQ(consumer.transport->memory_for(500), 500U);
}

TEST(NcclTransportTest, AConsumerWhoseBroadcastHangsCopiesNothingAndEndsInTime) {
  Made consumer(2, 2);
  EXPECT_THROW(consumer.transport->payload(host(), 500), WireError);
  EXPECT_THAT(consumer.calls->log, ElementsAre("broadcast 500 of 0", "mark 0"));
  EXPECT_EQ(consumer.calls->aborts, 1);
}

TEST(NcclTransportTest, ARelayOnlyTakesPart) {
  Made relay(1, 2);
  relay.transport->payload({}, 500);
  EXPECT_THAT(relay.calls->log, ElementsAre("broadcast 500 of 0", "mark 0"));
  EXPECT_EQ(relay.transport->memory_for(500), 0U);
}

TEST(NcclTransportTest, NothingIsBroadcastForNothing) {
  Made root(0, 1);
  root.transport->payload(host(), 0);
  EXPECT_THAT(root.calls->log, ElementsAre("mark 0"));
}

TEST(NcclTransportTest, ADeadlineAbortsTheCommunicator) {
  Made root(0, 1);
  root.transport->payload(host(), 10);
  const auto began = std::chrono::steady_clock::now();
  try {
    root.transport->finish(0);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const WireError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::timeout);
    EXPECT_THAT(error.what(), HasSubstr("200 ms"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1500));
  EXPECT_EQ(root.calls->aborts, 1);
}

TEST(NcclTransportTest, ASignalAbortsTheCommunicator) {
  const auto signal = std::make_shared<distributed::AbortSignal>();
  Made root(0, 1, std::chrono::seconds(30), signal);
  root.transport->payload(host(), 10);
  std::thread other([&] { signal->raise("the source ended"); });
  try {
    root.transport->finish(0);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const WireError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the source ended"));
  }
  other.join();
  EXPECT_EQ(root.calls->aborts, 1);
}

TEST(NcclTransportTest, WhatIsLeftUnderWayIsAborted) {
  Made root(0, 1);
  root.transport->payload(host(), 10);
  root.transport.reset();
  EXPECT_EQ(root.calls->aborts, 1);
  Made finished(0, 1);
  finished.transport->payload(host(), 10);
  finished.calls->everything_is_done = true;
  finished.transport->finish(0);
  finished.transport.reset();
  EXPECT_EQ(finished.calls->aborts, 0);
}

TEST(NcclTransportTest, WithoutAGpuItIsAConfigError) {
  if (distributed::why_no_nccl().empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(make_nccl_id(), ConfigError);
  EXPECT_THROW(make_nccl_calls(std::string(128, 'x'), 0, 1, milliseconds(100), {}), ConfigError);
}

}  // namespace
}  // namespace dbg::broadcast
