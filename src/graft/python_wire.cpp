// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Payloads as pickles, gathered by all.
#include "graft/python_wire.h"

#include <algorithm>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "codec/pickle_writer.h"
#include "distributed/collective_call.h"
#include "distributed/object_bytes.h"
#include "graft/payload_reader.h"

namespace dbg::graft {
namespace {

std::string payload_of_value(const Contribution& contribution) {
  codec::PickleWriter out(distributed::kPickleProtocol);
  distributed::emit_tensor_with_bytes(out, dense_on_host(contribution.tensor));
  codec::write_value(out, contribution.extras, distributed::emit_tensor_with_bytes);
  out.tuple_of_last(2);
  return out.finish();
}

std::string payload_of_nothing() {
  codec::PickleWriter out(distributed::kPickleProtocol);
  out.none();
  out.none();
  out.tuple_of_last(2);
  return out.finish();
}

// Payloads are padded to the longest, so that each rank holds as many of that length as there are ranks: together they
// may take so many times what one may.
constexpr std::int64_t kMostPadded = 4;
constexpr const char* kAdviceTooLong = "raise grafter_max_mib on all ranks, or graft less at once";

std::string payload_of_receiver() {
  codec::PickleWriter out(distributed::kPickleProtocol);
  out.none();
  return out.finish();
}

}  // namespace

std::string encode_payload(const Contribution& contribution, std::int64_t max_bytes, std::string* why) {
  if (contribution.state != ContributionState::value) return payload_of_nothing();
  std::string payload;
  const auto cause = base::run_fenced([&] { payload = payload_of_value(contribution); });
  if (!cause && payload.size() <= static_cast<std::uint64_t>(max_bytes)) return payload;
  *why =
      cause ? *cause : formatted("a payload of {} bytes, of at most {} (grafter_max_mib)", payload.size(), max_bytes);
  return payload_of_nothing();
}

Exchanged exchange_with_python(const Wire& wire, const ExchangeRequest& request) {
  distributed::GroupHalf& half = wire.half;
  distributed::CollectiveCall call(half, "graft", {wire.timeout, wire.abort});
  const bool is_sender = wire.sides.sends(half.rank_in_group, request.direction);
  std::string why;
  // What is known to be too much for some dbg rank is never announced: a length that is refused ends the group, and
  // Python with it.
  const std::int64_t own_limit =
      std::min(wire.common_max_bytes, kMostPadded * wire.common_max_bytes / wire.sides.size());
  distributed::EncodedObject encoded = distributed::encode_with(
      [&] { return is_sender ? encode_payload(request.own, own_limit, &why) : payload_of_receiver(); });
  if (encoded.error && is_sender) {
    why = "there is no memory for its payload";
    encoded = distributed::encode_with([] { return payload_of_nothing(); });
  }
  encoded.rethrow_if_failed();
  const std::vector<at::Tensor> payloads = distributed::all_gather_bytes(
      call, encoded.bytes, {wire.max_bytes, kMostPadded * wire.max_bytes, kAdviceTooLong});
  Exchanged made;
  if (is_sender) {
    made.not_sent = request.own.state == ContributionState::value ? why : request.own.reason;
    if (made.not_sent.empty()) {
      made.bytes_sent = static_cast<std::uint64_t>(request.own.tensor.nbytes()) *
                        static_cast<std::uint64_t>(wire.sides.count(false, request.direction));
    }
    return made;
  }
  const int first = wire.sides.begin(true, request.direction);
  for (int sender = 0; sender < wire.sides.count(true, request.direction); ++sender) {
    const at::Tensor& payload = payloads[static_cast<std::size_t>(first + sender)];
    made.senders.push_back(
        decode_payload(payload.const_data_ptr(), static_cast<std::size_t>(payload.numel()), wire.max_bytes));
    const Contribution& one = made.senders.back();
    if (one.state == ContributionState::value) made.bytes_received += static_cast<std::uint64_t>(one.tensor.nbytes());
  }
  return made;
}

}  // namespace dbg::graft
