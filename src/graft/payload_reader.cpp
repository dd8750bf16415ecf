// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads what a sender's pickle says, of whatever it may be.
#include "graft/payload_reader.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "codec/archive_reader.h"
#include "graft/place.h"

namespace dbg::graft {
namespace {

constexpr std::string_view kTensorPath = "[0]";

Contribution refused(std::string reason) {
  Contribution made;
  made.state = ContributionState::refused;
  made.reason = std::move(reason);
  return made;
}

Contribution contribution_in(const c10::IValue& payload, const std::vector<codec::Refusal>& refusals) {
  if (!payload.isTuple() || payload.toTupleRef().elements().size() != 2) {
    return refused(formatted("a payload of type {} where a pair of tensor and extras belongs", payload.tagKind()));
  }
  for (const codec::Refusal& one : refusals) {
    if (std::string_view(one.path).substr(0, kTensorPath.size()) == kTensorPath) {
      return refused(formatted("{} in place of a tensor", one.reason));
    }
  }
  Contribution made;
  const c10::IValue& value = payload.toTupleRef().elements()[0];
  made.extras = payload.toTupleRef().elements()[1];
  made.place = place_in(made.extras);
  if (!refusals.empty()) made.lost = formatted("{} at value{}", refusals.front().reason, refusals.front().path);
  if (value.isNone()) {
    made.reason = "the sender has no tensor to give";
    return made;
  }
  if (!value.isTensor()) return refused(formatted("a value of type {} in place of a tensor", value.tagKind()));
  if (value.toTensor().layout() != c10::kStrided) return refused("a sparse tensor");
  made.state = ContributionState::value;
  made.tensor = value.toTensor();
  return made;
}

}  // namespace

Contribution decode_payload(const void* data, std::size_t size, std::int64_t max_bytes) {
  codec::ReadLimits limits;
  limits.max_pickle_bytes = static_cast<std::uint64_t>(max_bytes);
  limits.max_tensor_bytes = static_cast<std::uint64_t>(max_bytes);
  Contribution made;
  const auto cause = base::run_fenced([&] {
    std::vector<codec::Refusal> refusals;
    const c10::IValue payload = codec::read_pickle_bytes(data, size, limits, &refusals);
    made = contribution_in(payload, refusals);
  });
  return cause ? refused(*cause) : made;
}

}  // namespace dbg::graft
