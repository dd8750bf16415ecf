// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Posts receives ahead, passes chunks on, waits for the oldest first.
#include "broadcast/gloo_transport.h"

#include <ATen/ATen.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/formatted.h"
#include "distributed/comm_cause.h"

namespace dbg::broadcast {
namespace {

constexpr int kHeaderTag = 0;
constexpr int kInfoTag = 1;
constexpr int kFirstStripeTag = 2;

at::Tensor bytes(std::uint64_t size) {
  return at::empty({static_cast<std::int64_t>(size)}, at::kByte);
}

at::Tensor part(const at::Tensor& memory, std::uint64_t begin, std::uint64_t size) {
  return memory.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(size));
}

// Runs a call of the backend; what it throws becomes a WireError.
template <class Call>
auto called(int peer, Call&& call) {
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const WireError&) {
    throw;
  } catch (...) {
    const distributed::CommCause cause = distributed::cause_of_current_exception();
    throw WireError(cause.kind, peer, cause.text);
  }
}

}  // namespace

GlooTransport::GlooTransport(c10::intrusive_ptr<c10d::Backend> backend, GlooTransportOptions options)
    : backend_(std::move(backend)),
      options_(std::move(options)),
      rank_(backend_->getRank()),
      control_link_(control_link(options_.node_ids, options_.num_senders, rank_)),
      links_(stripe_links(options_.node_ids, options_.num_senders, rank_)) {
  if (options_.chunk_bytes == 0) throw ConfigError("chunk_bytes is 0; it is at least 1.");
}

GlooTransport::~GlooTransport() = default;

void GlooTransport::throw_if_aborted() const {
  if (!options_.signal) return;
  if (const auto cause = options_.signal->cause()) throw WireError(CommErrorKind::broken, -1, "aborted: " + *cause);
}

c10::intrusive_ptr<c10d::Work> GlooTransport::begin_recv(at::Tensor memory, int from, int tag) {
  throw_if_aborted();
  return called(from, [&] {
    std::vector<at::Tensor> tensors{std::move(memory)};
    return backend_->recv(tensors, from, tag);
  });
}

void GlooTransport::begin_send(at::Tensor memory, int to, int tag) {
  throw_if_aborted();
  sent_bytes_ += static_cast<std::uint64_t>(memory.numel());
  Pending pending;
  pending.peer = to;
  pending.payload = payloads_;
  pending.work = called(to, [&] {
    std::vector<at::Tensor> tensors{std::move(memory)};
    return backend_->send(tensors, to, tag);
  });
  pending_.push_back(std::move(pending));
}

void GlooTransport::wait(const c10::intrusive_ptr<c10d::Work>& work, int peer, bool is_send) {
  throw_if_aborted();
  const distributed::AbortSignal::Scope scope(options_.signal.get(), work);
  if (called(peer, [&] { return work->wait(options_.timeout); })) return;
  throw_if_aborted();
  throw WireError(CommErrorKind::broken, peer,
                  formatted("the {} rank {} was given up", is_send ? "message to" : "message from", peer));
}

void GlooTransport::control(ControlMessage& message) {
  at::Tensor header = bytes(kHeaderBytes);
  at::Tensor infos;
  if (control_link_.from < 0) {
    message.header.info_bytes = message.infos.size();
    const HeaderBytes encoded = encode(message.header);
    std::memcpy(header.mutable_data_ptr(), encoded.data(), encoded.size());
    if (!message.infos.empty()) {
      infos = bytes(message.infos.size());
      std::memcpy(infos.mutable_data_ptr(), message.infos.data(), message.infos.size());
    }
  } else {
    if (!next_header_) {
      header_memory_ = bytes(kHeaderBytes);
      next_header_ = begin_recv(header_memory_, control_link_.from, kHeaderTag);
    }
    const auto work = std::move(next_header_);
    next_header_.reset();
    wait(work, control_link_.from, false);
    header = header_memory_;
    HeaderBytes received;
    std::memcpy(received.data(), header.const_data_ptr(), received.size());
    message.header = decode_header(received, options_.limits);
    message.infos.resize(message.header.info_bytes);
    if (message.header.info_bytes > 0) {
      infos = bytes(message.header.info_bytes);
      wait(begin_recv(infos, control_link_.from, kInfoTag), control_link_.from, false);
      std::memcpy(message.infos.data(), infos.const_data_ptr(), message.infos.size());
    }
    if (message.header.kind == MessageKind::bucket) {
      // Ahead, so that the next header need not wait for this rank to ask.
      header_memory_ = bytes(kHeaderBytes);
      next_header_ = begin_recv(header_memory_, control_link_.from, kHeaderTag);
    }
  }
  for (const int to : control_link_.to) {
    begin_send(header, to, kHeaderTag);
    if (infos.defined()) begin_send(infos, to, kInfoTag);
  }
}

std::uint64_t GlooTransport::base_of(std::uint64_t length) const {
  const bool is_relay = rank_ > 0 && rank_ < options_.num_senders;
  return is_relay ? stripe_range(length, options_.num_senders, rank_).begin : 0;
}

std::uint64_t GlooTransport::memory_for(std::uint64_t length) const {
  const bool is_relay = rank_ > 0 && rank_ < options_.num_senders;
  return is_relay ? stripe_range(length, options_.num_senders, rank_).size() : length;
}

std::uint64_t GlooTransport::payload(const at::Tensor& memory, std::uint64_t length) {
  struct Chunk {
    const StripeLink* link;
    ByteRange range;
    c10::intrusive_ptr<c10d::Work> receive;
  };
  // Chunk by chunk through all stripes: they come in at the same pace.
  std::vector<Chunk> chunks;
  const std::uint64_t base = base_of(length);
  bool has_more = true;
  for (std::uint64_t number = 0; has_more; ++number) {
    has_more = false;
    for (const StripeLink& link : links_) {
      const ByteRange stripe = stripe_range(length, options_.num_senders, link.stripe);
      const std::uint64_t begin = stripe.begin + number * options_.chunk_bytes;
      if (begin >= stripe.end) continue;
      has_more = true;
      const ByteRange range{begin, std::min(stripe.end, begin + options_.chunk_bytes)};
      chunks.push_back({&link, range, {}});
    }
  }
  // What others wait for comes first, so that a stripe that is late holds up no other one's way. Those who pass a
  // stripe on wait for nobody but ranks before them on its way, which do likewise: nobody waits for one who waits for
  // him.
  std::stable_partition(chunks.begin(), chunks.end(), [](const Chunk& chunk) { return !chunk.link->to.empty(); });
  // All at once: a sender sends as soon as the other side has said where to.
  for (Chunk& chunk : chunks) {
    if (chunk.link->from < 0) continue;
    chunk.receive = begin_recv(part(memory, chunk.range.begin - base, chunk.range.size()), chunk.link->from,
                               kFirstStripeTag + chunk.link->stripe);
  }
  for (Chunk& chunk : chunks) {
    if (chunk.receive) wait(chunk.receive, chunk.link->from, false);
    for (const int to : chunk.link->to) {
      begin_send(part(memory, chunk.range.begin - base, chunk.range.size()), to, kFirstStripeTag + chunk.link->stripe);
    }
  }
  return payloads_++;
}

bool GlooTransport::advance() {
  if (pending_.empty()) return false;
  // Taken out first: whatever comes of it, it is waited for once.
  const Pending oldest = std::move(pending_.front());
  pending_.pop_front();
  wait(oldest.work, oldest.peer, true);
  return true;
}

std::uint64_t GlooTransport::finished_below() const {
  return pending_.empty() ? payloads_ : pending_.front().payload;
}

void GlooTransport::finish(std::uint64_t number) {
  while (finished_below() <= number && advance()) {
  }
}

}  // namespace dbg::broadcast
