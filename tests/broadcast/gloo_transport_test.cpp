// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Striped chains without a sync around them: bytes, memory that is free again, deadlines, signals.
#include "broadcast/gloo_transport.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "distributed/gloo_halves.h"

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

GlooTransportOptions options_of(int senders, std::vector<std::string> nodes,
                                milliseconds timeout = std::chrono::seconds(20)) {
  GlooTransportOptions options;
  options.num_senders = senders;
  options.node_ids = std::move(nodes);
  options.chunk_bytes = 777;
  options.timeout = timeout;
  options.limits = {1, 1 << 20};
  options.signal = std::make_shared<distributed::AbortSignal>();
  return options;
}

at::Tensor pattern(std::uint64_t length, int number) {
  return ((at::arange(static_cast<std::int64_t>(length), at::kLong) * 31 + number * 7) % 251).to(at::kByte);
}

void broadcast_some(GlooTransport& transport, int rank, int senders, const std::vector<std::uint64_t>& lengths) {
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    ControlMessage message;
    message.header.generation = 1;
    if (rank == 0) {
      message.header.bucket = i;
      message.header.length = lengths[i];
      message.infos.assign(i * 3, std::byte{7});
    }
    transport.control(message);
    ASSERT_EQ(message.header.bucket, i);
    ASSERT_EQ(message.infos.size(), i * 3);
    const std::uint64_t length = message.header.length;
    const at::Tensor expected = pattern(length, static_cast<int>(i));
    at::Tensor memory = at::zeros({static_cast<std::int64_t>(transport.memory_for(length))}, at::kByte);
    if (rank == 0) memory = expected.clone();
    const std::uint64_t number = transport.payload(memory, length);
    transport.finish(number);
    ASSERT_GT(transport.finished_below(), number);
    if (rank >= senders) {
      ASSERT_TRUE(at::equal(memory, expected)) << "rank " << rank << ", length " << length;
    } else if (rank > 0) {
      const ByteRange own = stripe_range(length, senders, rank);
      ASSERT_TRUE(at::equal(
          memory, expected.slice(0, static_cast<std::int64_t>(own.begin), static_cast<std::int64_t>(own.end))));
    }
    // As a sink that reads it and a source that writes over it would.
    memory.fill_(0xee);
  }
  while (transport.advance()) {
  }
}

TEST(GlooTransportTest, AnyLengthOverAnyChain) {
  struct Layout {
    int senders;
    std::vector<std::string> nodes;
  };
  for (const Layout& layout : {Layout{1, {"a", "b"}}, Layout{1, {"a", "b", "b", "c"}}, Layout{2, {"a", "a", "b", "b"}},
                               Layout{3, {"a", "a", "a", "b"}}, Layout{2, {"a", "a", "b", "c", "c"}}}) {
    test::run_halves_as_threads(static_cast<int>(layout.nodes.size()), [&](distributed::GroupHalf& half) {
      GlooTransport transport(half.backend, options_of(layout.senders, layout.nodes));
      broadcast_some(transport, half.rank_in_group, layout.senders, {0, 1, 63, 64, 65, 777, 778, 5000, 100000, 3});
      const bool passes_on = half.rank_in_group < layout.senders ||
                             !control_link(layout.nodes, layout.senders, half.rank_in_group).to.empty();
      if (passes_on) {
        EXPECT_GT(transport.sent_bytes(), 0U);
      }
    });
  }
}

// Counts the payload's bytes that are sent.
class CountingBackend : public c10d::Backend {
 public:
  CountingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::atomic<std::uint64_t>& sent)
      : c10d::Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), sent_(sent) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    const std::uint64_t size = tag >= 2 ? tensors.front().nbytes() : 0;
    auto work = inner_->send(tensors, to, tag);
    sent_ += size;
    return work;
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return inner_->recv(tensors, from, tag);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  std::atomic<std::uint64_t>& sent_;
};

TEST(GlooTransportTest, AStripeGoesOnThoughAnotherIsLate) {
  constexpr std::uint64_t kLength = 100000;
  const std::vector<std::string> nodes{"a", "a", "b", "b"};
  std::atomic<std::uint64_t> passed_on{0};  // by the entry of stripe 0, to its neighbour
  test::run_halves_as_threads(4, [&](distributed::GroupHalf& half) {
    const int rank = half.rank_in_group;
    c10::intrusive_ptr<c10d::Backend> backend = half.backend;
    if (rank == 2) backend = c10::make_intrusive<CountingBackend>(backend, passed_on);
    GlooTransport transport(backend, options_of(2, nodes));
    ControlMessage message;
    message.header.generation = 1;
    message.header.length = rank == 0 ? kLength : 0;
    transport.control(message);
    const at::Tensor expected = pattern(kLength, 5);
    at::Tensor memory = at::zeros({static_cast<std::int64_t>(transport.memory_for(kLength))}, at::kByte);
    if (rank == 0) memory = expected.clone();
    if (rank == 1) {
      const std::uint64_t stripe = stripe_range(kLength, 2, 0).size();
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (passed_on < stripe && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      EXPECT_EQ(passed_on.load(), stripe);
    }
    transport.finish(transport.payload(memory, kLength));
    if (rank >= 2) {
      EXPECT_TRUE(at::equal(memory, expected));
    }
  });
}

TEST(GlooTransportTest, TheRootSendsEachByteOnce) {
  test::run_halves_as_threads(4, [](distributed::GroupHalf& half) {
    GlooTransport transport(half.backend, options_of(1, {"a", "b", "b", "c"}));
    broadcast_some(transport, half.rank_in_group, 1, {100000});
    if (half.rank_in_group == 0) {
      EXPECT_EQ(transport.sent_bytes(), 100000 + kHeaderBytes);
    }
  });
}

template <class Body>
std::string wire_error_of(Body&& body, milliseconds limit) {
  const auto began = std::chrono::steady_clock::now();
  try {
    body();
  } catch (const WireError& error) {
    EXPECT_LT(std::chrono::steady_clock::now() - began, limit);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(GlooTransportTest, WaitsEndAtTheirDeadline) {
  test::run_halves_as_threads(2, [](distributed::GroupHalf& half) {
    if (half.rank_in_group == 0) return;
    GlooTransport transport(half.backend, options_of(1, {"a", "b"}, milliseconds(300)));
    ControlMessage message;
    wire_error_of([&] { transport.control(message); }, milliseconds(1500));
  });
}

TEST(GlooTransportTest, ASignalEndsTheWait) {
  test::run_halves_as_threads(2, [](distributed::GroupHalf& half) {
    if (half.rank_in_group == 0) return;
    const GlooTransportOptions options = options_of(1, {"a", "b"});
    GlooTransport transport(half.backend, options);
    std::thread other([signal = options.signal] { signal->raise("enough"); });
    ControlMessage message;
    EXPECT_THAT(wire_error_of([&] { transport.control(message); }, milliseconds(3000)), HasSubstr("enough"));
    other.join();
    // And nothing begins any more.
    EXPECT_THAT(wire_error_of([&] { transport.control(message); }, milliseconds(1000)), HasSubstr("enough"));
  });
}

TEST(GlooTransportTest, AMessageThatIsNoHeaderIsRefused) {
  test::run_halves_as_threads(2, [](distributed::GroupHalf& half) {
    if (half.rank_in_group == 0) {
      std::vector<at::Tensor> noise{at::full({128}, 9, at::kByte)};
      half.backend->send(noise, 1, 0)->wait();
      return;
    }
    GlooTransport transport(half.backend, options_of(1, {"a", "b"}));
    ControlMessage message;
    EXPECT_THROW(transport.control(message), CommError);
  });
}

}  // namespace
}  // namespace dbg::broadcast
