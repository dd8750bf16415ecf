// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Headers, then messages.
#include "graft/framed_wire.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "codec/archive_reader.h"
#include "codec/crc32.h"
#include "codec/pickle_writer.h"
#include "dbg/error.h"
#include "distributed/collectives.h"
#include "distributed/object_bytes.h"
#include "distributed/p2p.h"
#include "graft/frame.h"
#include "graft/place.h"

namespace dbg::graft {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Of messages; any number that nobody else uses within this group.
constexpr int kInfoTag = 1;
constexpr int kTensorTag = 2;

// What a sender brings, ready for the wire.
struct Outgoing {
  at::Tensor bytes;  // of the tensor
  at::Tensor info;
};

at::Tensor flat_bytes(const at::Tensor& dense) {
  return dense.reshape({-1}).view(at::kByte);
}

at::Tensor info_of(const Contribution& own) {
  const bool has_place = !own.place.dims.empty() || !own.place.parallel.empty();
  if (own.extras.isNone() && !has_place) return at::empty({0}, at::kByte);
  const distributed::EncodedObject encoded = distributed::encode_with([&] {
    c10::impl::GenericDict info(c10::StringType::get(), c10::AnyType::get());
    info.insert("extras", own.extras);
    info.insert("place", to_dict(own.place));
    codec::PickleWriter out(distributed::kPickleProtocol);
    codec::write_value(out, c10::IValue(std::move(info)), distributed::emit_tensor_with_bytes);
    return out.finish();
  });
  encoded.rethrow_if_failed();
  return encoded.bytes;
}

FrameHeader header_of(const Wire& wire, const ExchangeRequest& request, Outgoing& outgoing) {
  FrameHeader header;
  header.has_value = request.own.state == ContributionState::value;
  header.direction = request.direction;
  header.step = request.step;
  header.occurrence = request.occurrence;
  header.name = request.name;
  header.name_hash = hash_of_name(request.name);
  header.tags = tags_of_call(request.tags);
  header.max_bytes = wire.max_bytes;
  header.reason = request.own.reason;
  if (!header.has_value || !wire.sides.sends(wire.half.rank_in_group, request.direction)) return header;
  const auto cause = base::run_fenced([&] {
    const auto dims = static_cast<std::size_t>(request.own.tensor.dim());
    if (dims > kMostDims) throw ConfigError(formatted("it has {} dimensions, of at most {}", dims, kMostDims));
    const at::Tensor dense = dense_on_host(request.own.tensor);
    outgoing.bytes = flat_bytes(dense);
    outgoing.info = info_of(request.own);
    header.sizes = dense.sizes().vec();
    header.dtype = static_cast<std::int8_t>(dense.scalar_type());
    header.tensor_bytes = outgoing.bytes.numel();
    header.info_bytes = outgoing.info.numel();
    header.digest = codec::crc32(outgoing.bytes.const_data_ptr(), static_cast<std::size_t>(outgoing.bytes.numel()));
  });
  if (cause) {
    header.has_value = false;
    header.sizes.clear();
    header.tensor_bytes = header.info_bytes = 0;
    header.reason = formatted("its tensor can't be sent: {}", *cause);
  }
  return header;
}

std::vector<FrameHeader> gather_headers(const Wire& wire, const FrameHeader& own, milliseconds left) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(kHeaderBytes)}, at::kByte);
  write_header(own, static_cast<std::byte*>(bytes.mutable_data_ptr()));
  std::vector<FrameHeader> headers;
  for (const at::Tensor& one : distributed::all_gather_list(wire.half, bytes, {left, wire.abort})) {
    headers.push_back(read_header(static_cast<const std::byte*>(one.const_data_ptr())));
  }
  return headers;
}

// Why what this rank announces is not sent to anybody; nullopt when it is. All ranks come to the same answer.
std::optional<std::string> why_not_sent(const FrameHeader& header, std::int64_t limit) {
  if (!header.has_value) return header.reason.empty() ? "the sender has no tensor to give" : header.reason;
  if (header.tensor_bytes > limit || header.info_bytes > limit) {
    return formatted("a tensor of {} bytes with {} of extras; all ranks take at most {} (grafter_max_mib)",
                     header.tensor_bytes, header.info_bytes, limit);
  }
  return std::nullopt;
}

using Messages = std::vector<distributed::PendingMessage>;

void begin_sends(const Wire& wire, const Outgoing& outgoing, int receiver, const distributed::CallOptions& options,
                 Messages& messages) {
  if (outgoing.info.numel() > 0) {
    messages.push_back(distributed::begin_send(wire.half, outgoing.info, receiver, kInfoTag, options));
  }
  if (outgoing.bytes.numel() > 0) {
    messages.push_back(distributed::begin_send(wire.half, outgoing.bytes, receiver, kTensorTag, options));
  }
}

// Room for what a sender announced, being filled.
struct Incoming {
  FrameHeader header;
  at::Tensor tensor;
  at::Tensor info;
};

Incoming begin_recvs(const Wire& wire, const FrameHeader& header, int sender, const distributed::CallOptions& options,
                     Messages& messages) {
  Incoming incoming{header, at::empty(header.sizes, static_cast<at::ScalarType>(header.dtype)),
                    at::empty({header.info_bytes}, at::kByte)};
  if (header.info_bytes > 0) {
    messages.push_back(distributed::begin_recv(wire.half, incoming.info, sender, kInfoTag, options));
  }
  if (header.tensor_bytes > 0) {
    messages.push_back(distributed::begin_recv(wire.half, flat_bytes(incoming.tensor), sender, kTensorTag, options));
  }
  return incoming;
}

void read_info(const Incoming& incoming, std::int64_t max_bytes, Contribution& made) {
  if (incoming.info.numel() == 0) return;
  codec::ReadLimits limits;
  limits.max_pickle_bytes = static_cast<std::uint64_t>(incoming.info.numel());
  // An expanded tensor is sent as the few bytes that it has, and counted by the elements that it shows.
  limits.max_tensor_bytes = static_cast<std::uint64_t>(max_bytes);
  std::vector<codec::Refusal> refusals;
  const c10::IValue info = codec::read_pickle_bytes(incoming.info.const_data_ptr(),
                                                    static_cast<std::size_t>(incoming.info.numel()), limits, &refusals);
  if (!info.isGenericDict()) throw IoError("info that is no dict");
  for (const auto& entry : info.toGenericDict()) {
    if (!entry.key().isString()) continue;
    if (entry.key().toStringView() == "extras") made.extras = entry.value();
    if (entry.key().toStringView() == "place") made.place = place_in(entry.value());
  }
  if (!refusals.empty()) made.lost = formatted("{} at value{}", refusals.front().reason, refusals.front().path);
  // What is said of one call counts before what the rank says of all.
  made.place = merged(place_in(made.extras), made.place);
}

Contribution finish(const Incoming& incoming, std::int64_t max_bytes) {
  Contribution made;
  const auto cause = base::run_fenced([&] {
    const at::Tensor bytes = flat_bytes(incoming.tensor);
    const std::uint32_t digest = codec::crc32(bytes.const_data_ptr(), static_cast<std::size_t>(bytes.numel()));
    if (digest != incoming.header.digest) {
      throw IoError(formatted("its bytes arrived damaged: their CRC-32 is {:08x} and was {:08x}", digest,
                              incoming.header.digest));
    }
    read_info(incoming, max_bytes, made);
  });
  made.state = cause ? ContributionState::refused : ContributionState::value;
  made.reason = cause.value_or("");
  made.tensor = incoming.tensor;
  return made;
}

class Call {
 public:
  Call(const Wire& wire, const ExchangeRequest& request)
      : wire_(wire), request_(request), deadline_(steady_clock::now() + wire.timeout) {}

  Exchanged run() {
    const FrameHeader own = header_of(wire_, request_, outgoing_);
    if (const auto note = gather_until_met(own)) {
      Exchanged made;
      made.met = false;
      made.note = *note;
      return made;
    }
    return wire_.sides.sends(wire_.half.rank_in_group, request_.direction) ? send() : receive();
  }

 private:
  milliseconds left() const {
    return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline_ - steady_clock::now()));
  }

  // Nothing once all are at this call; else where they are.
  std::optional<std::string> gather_until_met(const FrameHeader& own) {
    for (bool is_first = true;; is_first = false) {
      headers_ = gather_headers(wire_, own, left());
      const Decision decision = decide(headers_, wire_.half.rank_in_group);
      if (decision.agreement == Agreement::meet) return std::nullopt;
      if (decision.agreement == Agreement::skip) return decision.note;
      if (is_first) {
        base::log(LogLevel::warning, "Grafter", "waiting for the ranks of an earlier step: {}", decision.note);
      }
    }
  }

  distributed::CallOptions options() const { return {left(), wire_.abort}; }

  Exchanged send() {
    Exchanged made;
    const FrameHeader& own = headers_[static_cast<std::size_t>(wire_.half.rank_in_group)];
    if (const auto cause = why_not_sent(own, common_limit(headers_))) {
      made.not_sent = *cause;
      return made;
    }
    Messages messages;
    const int first = wire_.sides.begin(false, request_.direction);
    for (int receiver = first; receiver < first + wire_.sides.count(false, request_.direction); ++receiver) {
      if (!headers_[static_cast<std::size_t>(receiver)].has_value) continue;
      begin_sends(wire_, outgoing_, receiver, options(), messages);
      made.bytes_sent += static_cast<std::uint64_t>(own.tensor_bytes);
    }
    for (distributed::PendingMessage& message : messages) message.wait();
    return made;
  }

  Exchanged receive() {
    Exchanged made;
    const bool takes = headers_[static_cast<std::size_t>(wire_.half.rank_in_group)].has_value;
    const std::int64_t limit = common_limit(headers_);
    Messages messages;
    std::vector<std::optional<Incoming>> incoming;
    const int first = wire_.sides.begin(true, request_.direction);
    for (int sender = first; sender < first + wire_.sides.count(true, request_.direction); ++sender) {
      const FrameHeader& header = headers_[static_cast<std::size_t>(sender)];
      incoming.emplace_back();
      if (!takes || why_not_sent(header, limit)) continue;
      incoming.back() = begin_recvs(wire_, header, sender, options(), messages);
      made.bytes_received += static_cast<std::uint64_t>(header.tensor_bytes);
    }
    for (distributed::PendingMessage& message : messages) message.wait();
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      if (incoming[i]) {
        made.senders.push_back(finish(*incoming[i], wire_.max_bytes));
        continue;
      }
      const FrameHeader& header = headers_[static_cast<std::size_t>(first) + i];
      Contribution none;
      none.state = header.has_value ? ContributionState::refused : ContributionState::nothing;
      none.reason = why_not_sent(header, limit).value_or("nobody was asked, since there is no tensor here");
      made.senders.push_back(std::move(none));
    }
    return made;
  }

  const Wire& wire_;
  const ExchangeRequest& request_;
  const steady_clock::time_point deadline_;
  Outgoing outgoing_;
  std::vector<FrameHeader> headers_;
};

}  // namespace

Exchanged exchange_framed(const Wire& wire, const ExchangeRequest& request) {
  return Call(wire, request).run();
}

}  // namespace dbg::graft
