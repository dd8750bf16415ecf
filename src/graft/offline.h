// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Grafts without a peer: the senders are the ranks whose records lie in a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dbg/tags.h"
#include "graft/contribution.h"

namespace dbg::graft {

/// What to look for: a dump of the run, by name, step and tags.
struct OfflineRequest {
  const Tags& tags;
  std::int64_t step = 0;
  int rank = 0;
  bool wants_all_ranks = false;  ///< else only the record of this rank itself
};

struct OfflineAnswer {
  std::vector<Contribution> senders;  ///< in rank order, or this rank's own alone; none when the record is missing
  std::string missing;                ///< then: what was looked for, and the nearest thing there is
};

/// The records of a folder.
///
/// Records match by name, step and tags as file names have them, but for those of parallel ranks, which the rank says
/// already. A tag counts when a record of the folder has it. A record with tags that the dump lacks is taken only where
/// there is none without them, and never once the run has used that tag. Of one rank's equal ones the n-th by
/// dump_index is the n-th that is asked for. Threads: safe to call from any thread.
class OfflineSource {
 public:
  /// Lists the folder, or the only folder in it that has records. Throws: IoError when it can't be read; ConfigError
  /// when there are no records.
  explicit OfflineSource(const std::string& folder);
  ~OfflineSource();
  OfflineSource(const OfflineSource&) = delete;
  OfflineSource& operator=(const OfflineSource&) = delete;

  /// Never throws but for memory: a record that can't be read is a refused contribution.
  OfflineAnswer find(const OfflineRequest& request, std::int64_t max_bytes);

  /// Says in one line how many records nobody asked for, and which come first. Once.
  void report_unused();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dbg::graft
