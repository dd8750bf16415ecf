// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Copies in, broadcasts, copies out; waits for marks by asking.
#include "broadcast/nccl_transport.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/formatted.h"

namespace dbg::broadcast {
namespace {

constexpr std::uint64_t kHeadersUnderWay = 16;

}  // namespace

NcclTransport::NcclTransport(std::shared_ptr<Transport> headers, std::shared_ptr<NcclCalls> calls,
                             std::vector<void*>& memory, NcclTransportOptions options)
    : headers_(std::move(headers)), calls_(std::move(calls)), options_(std::move(options)) {
  while (static_cast<int>(memory.size()) < options_.depth) memory.push_back(calls_->allocate(options_.bucket_bytes));
  slots_ = memory;
  calls_->set_signal(options_.signal);
}

NcclTransport::~NcclTransport() {
  if (!marks_.empty()) calls_->abort();
}

void NcclTransport::control(ControlMessage& message) {
  headers_->control(message);
  // What was sent is let go of now and then; most of it is out for long.
  if (++headers_sent_ % kHeadersUnderWay != 0) return;
  while (headers_->advance()) {
  }
}

std::uint64_t NcclTransport::memory_for(std::uint64_t length) const {
  return is_relay() ? 0 : length;
}

void NcclTransport::wait(std::uint64_t mark) {
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  auto pause = std::chrono::microseconds(20);
  while (!calls_->is_done(mark)) {
    if (options_.signal) {
      if (const auto cause = options_.signal->cause()) {
        calls_->abort();
        throw WireError(CommErrorKind::broken, -1, "aborted: " + *cause);
      }
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      calls_->abort();
      throw WireError(CommErrorKind::timeout, -1,
                      formatted("a broadcast over NCCL was not done within {} ms", options_.timeout.count()));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(500));
  }
}

std::uint64_t NcclTransport::payload(const at::Tensor& memory, std::uint64_t length) {
  // The device's memory of this slot is free once the payload that had it is done.
  while (marks_.size() >= slots_.size()) advance();
  void* const device = slots_[payloads_ % slots_.size()];
  const bool is_root = options_.rank == 0;
  if (length > 0) {
    if (is_root) calls_->copy_in(device, memory.const_data_ptr(), length);
    calls_->broadcast(device, length);
  }
  if (is_root) sent_bytes_ += length;
  marks_.push_back(calls_->record());
  if (options_.rank < options_.num_senders) return payloads_++;
  // A consumer's values have to be there, while senders go on. It asks whether the broadcast is through before it
  // copies: a copy into pageable memory waits for all before it, which no signal and no deadline would end.
  while (!marks_.empty()) advance();
  if (length > 0) {
    calls_->copy_out(memory.mutable_data_ptr(), device, length);
    wait(calls_->record());
  }
  return payloads_++;
}

bool NcclTransport::advance() {
  if (marks_.empty()) return headers_->advance();
  wait(marks_.front());
  marks_.pop_front();
  return true;
}

std::uint64_t NcclTransport::finished_below() const {
  return payloads_ - marks_.size();
}

void NcclTransport::finish(std::uint64_t number) {
  while (finished_below() <= number && advance()) {
  }
}

}  // namespace dbg::broadcast
