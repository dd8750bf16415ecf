// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The axes of a parallel layout.
#include "dbg/parallel_state.h"

#include <algorithm>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg {
namespace {

bool is_plain_word(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

ParallelState& ParallelState::set(std::string_view name, int rank, int size) {
  if (!is_plain_word(name)) {
    throw ConfigError(formatted("parallel axis '{}': expected a plain word such as tp, pp, dp, cp, ep or etp", name));
  }
  if (size < 1 || rank < 0 || rank >= size) {
    throw ConfigError(formatted("parallel axis {}: rank={}, size={}; expected 0 <= rank < size", name, rank, size));
  }
  for (ParallelAxis& axis : axes_) {
    if (axis.name == name) {
      axis.rank = rank;
      axis.size = size;
      return *this;
    }
  }
  axes_.push_back({std::string(name), rank, size});
  return *this;
}

std::optional<ParallelAxis> ParallelState::find(std::string_view name) const {
  for (const ParallelAxis& axis : axes_) {
    if (axis.name == name) return axis;
  }
  return std::nullopt;
}

}  // namespace dbg
