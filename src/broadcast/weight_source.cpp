// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What sources and sinks do unless they say otherwise.
#include "dbg/weight_source.h"

namespace dbg {

WeightSource::~WeightSource() = default;

void WeightSource::begin() {}

std::optional<std::vector<WeightInfo>> WeightSource::manifest() const {
  return std::nullopt;
}

bool WeightSource::has_stable_storage() const {
  return false;
}

SourceKind WeightSource::kind() const {
  return SourceKind::full_weights;
}

WeightSink::~WeightSink() = default;

void WeightSink::begin(std::int64_t) {}

at::Tensor WeightSink::storage_for(const WeightInfo&) {
  return {};
}

void WeightSink::check_complete() {}

void WeightSink::roll_back(std::string_view) noexcept {}

}  // namespace dbg
