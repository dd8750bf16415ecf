// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where a rank stands in a parallel layout: per axis (tp, pp, dp, cp, ep, etp ...) its rank and the axis's size.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// One axis of a parallel layout.
struct ParallelAxis {
  std::string name;  ///< `tp`, `pp`, `dp`, `cp`, `ep`, `etp`, ...
  int rank = 0;
  int size = 1;

  friend bool operator==(const ParallelAxis& a, const ParallelAxis& b) {
    return a.name == b.name && a.rank == b.rank && a.size == b.size;
  }
};

/// The axes of one rank, in the order they were set. An axis that is not there is simply not known.
/// Threads: one thread at a time.
class DBG_API ParallelState {
 public:
  /// Sets one axis; an axis that is there keeps its place.
  /// Throws: ConfigError unless `name` is a plain word (letters, digits, `_`) and `0 <= rank < size`.
  ParallelState& set(std::string_view name, int rank, int size);

  /// The axis, or nullopt.
  std::optional<ParallelAxis> find(std::string_view name) const;

  const std::vector<ParallelAxis>& axes() const noexcept { return axes_; }
  bool empty() const noexcept { return axes_.empty(); }

  friend bool operator==(const ParallelState& a, const ParallelState& b) { return a.axes_ == b.axes_; }

 private:
  std::vector<ParallelAxis> axes_;
};

}  // namespace dbg
