// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Striped chains on gloo's send and receive.
//
// gloo's own broadcast is a tree that stores and forwards whole buffers; here each chunk goes on as soon as it is
// there, and each sender's card carries a stripe of its own. Tags: 0 headers, 1 infos, 2 + s the chunks of stripe s.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "broadcast/stripes.h"
#include "broadcast/transport.h"
#include "distributed/abort_signal.h"

namespace dbg::broadcast {

struct GlooTransportOptions {
  int num_senders = 1;
  std::vector<std::string> node_ids{};  ///< by rank
  std::uint64_t chunk_bytes = 512 << 10;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};  ///< of each wait
  HeaderLimits limits{};
  std::shared_ptr<distributed::AbortSignal> signal{};  ///< ends all waits
};

class GlooTransport : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Backend> backend, GlooTransportOptions options);
  /// Waits for nothing; what is on its way is given up, and the group with it.
  ~GlooTransport() override;

  void control(ControlMessage& message) override;
  std::uint64_t memory_for(std::uint64_t length) const override;
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override;
  bool advance() override;
  std::uint64_t finished_below() const override;
  void finish(std::uint64_t number) override;
  std::uint64_t sent_bytes() const override { return sent_bytes_; }

 private:
  struct Pending {
    c10::intrusive_ptr<c10d::Work> work;
    int peer = -1;
    std::uint64_t payload = 0;  ///< the number of the payload, or of the one that follows
  };

  c10::intrusive_ptr<c10d::Work> begin_recv(at::Tensor memory, int from, int tag);
  void begin_send(at::Tensor memory, int to, int tag);
  void wait(const c10::intrusive_ptr<c10d::Work>& work, int peer, bool is_send);
  void throw_if_aborted() const;
  /// The own part of a stripe within `memory`.
  std::uint64_t base_of(std::uint64_t length) const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  GlooTransportOptions options_;
  int rank_;
  StripeLink control_link_;
  std::vector<StripeLink> links_;
  at::Tensor header_memory_;  // of the receive that is posted ahead
  c10::intrusive_ptr<c10d::Work> next_header_;
  std::deque<Pending> pending_;  // sends, oldest first
  std::uint64_t payloads_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dbg::broadcast
