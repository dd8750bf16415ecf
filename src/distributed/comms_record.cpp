// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Emits the event. Compiled with NDEBUG in every build type: at::RecordFunction's layout depends on it.
#ifndef NDEBUG
#error "comms_record.cpp is compiled with NDEBUG: see dbg_sources_with_ndebug"
#endif

#include "distributed/comms_record.h"

#include <ATen/record_function.h>

#include <initializer_list>
#include <string>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <utility>
#include <vector>

namespace dbg::distributed {
namespace {

// First rank and distance of ranks that lie evenly, as the trace has them; distance 0 where they do not.
std::pair<int, int> start_and_stride(const std::vector<int>& ranks) {
  if (ranks.empty()) return {0, 0};
  if (ranks.size() == 1) return {ranks[0], 1};
  const int stride = ranks[1] - ranks[0];
  for (std::size_t i = 2; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != stride) return {ranks[0], 0};
  }
  return {ranks[0], stride};
}

}  // namespace

struct CommsRecord::Event {
  Event(const GroupHalf& half, std::string_view operation, std::uint64_t sequence, const CallShape& shape)
      : names(half.name, half.label),
        place(start_and_stride(half.ranks)),
        info(std::make_shared<torch::ParamCommsDebugInfo>(
            names, half.rank_in_group, std::string(operation), shape.in_elements, shape.out_elements, shape.dtype,
            std::vector<std::int64_t>{}, std::vector<std::int64_t>{}, place.first, place.second, half.size())),
        guard(c10::DebugInfoKind::PARAM_COMMS_INFO, info),
        record(at::RecordScope::FUNCTION) {
    if (!record.isActive()) return;
    const std::initializer_list<const c10::IValue> inputs = {
        std::make_tuple(static_cast<std::int64_t>(sequence), shape.peer >= 0),
        names,
        half.rank_in_group,
        std::string(operation),
        std::vector<std::int64_t>{},
        std::vector<std::int64_t>{},
        place.first,
        place.second,
        half.size()};
    record.before(at::kParamCommsCallName, c10::ArrayRef<const c10::IValue>(inputs));
  }

  std::tuple<std::string, std::string> names;
  std::pair<int, int> place;
  std::shared_ptr<torch::ParamCommsDebugInfo> info;
  // Destroyed after the record: the profiler looks at the information when the event ends, too.
  c10::DebugInfoGuard guard;
  at::RecordFunction record;
};

CommsRecord::CommsRecord(const GroupHalf& half, std::string_view operation, std::uint64_t sequence,
                         const CallShape& shape)
    : event_(at::hasCallbacks() ? std::make_unique<Event>(half, operation, sequence, shape) : nullptr) {}

CommsRecord::~CommsRecord() = default;

}  // namespace dbg::distributed
