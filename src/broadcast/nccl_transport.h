// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Buckets over NCCL: one broadcast each, of exactly its length, while headers go before them over gloo.
//
// NCCL's broadcast is a ring per channel, and a channel may leave the node through any GPU of the communicator: being
// in the group is all that a relay does.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "broadcast/nccl_calls.h"
#include "broadcast/transport.h"
#include "distributed/abort_signal.h"

namespace dbg::broadcast {

struct NcclTransportOptions {
  int rank = 0;
  int num_senders = 1;
  int depth = 2;  ///< buckets on the device at once
  std::uint64_t bucket_bytes = 0;
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  std::shared_ptr<distributed::AbortSignal> signal{};
};

/// Orders the calls; makes none itself but through NcclCalls.
class NcclTransport : public Transport {
 public:
  /// `memory`: of the device, kept from sync to sync; filled up to `depth` pieces.
  NcclTransport(std::shared_ptr<Transport> headers, std::shared_ptr<NcclCalls> calls, std::vector<void*>& memory,
                NcclTransportOptions options);
  /// Aborts the communicator unless all that was begun is done.
  ~NcclTransport() override;

  void control(ControlMessage& message) override;
  /// Relays hold no bytes on the host.
  std::uint64_t memory_for(std::uint64_t length) const override;
  std::uint64_t payload(const at::Tensor& memory, std::uint64_t length) override;
  bool advance() override;
  std::uint64_t finished_below() const override;
  void finish(std::uint64_t number) override;
  std::uint64_t sent_bytes() const override { return headers_->sent_bytes() + sent_bytes_; }

 private:
  void wait(std::uint64_t mark);
  bool is_relay() const { return options_.rank > 0 && options_.rank < options_.num_senders; }

  std::shared_ptr<Transport> headers_;
  std::shared_ptr<NcclCalls> calls_;
  NcclTransportOptions options_;
  std::vector<void*> slots_;
  std::deque<std::uint64_t> marks_;  // of the payloads under way, oldest first
  std::uint64_t payloads_ = 0;
  std::uint64_t headers_sent_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dbg::broadcast
