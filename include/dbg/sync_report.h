// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What one weight sync came to: how much, how fast, where the time went, who has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// How a consumer ended a sync.
struct ConsumerCommit {
  std::string consumer;  ///< `rollout 1 on node b`
  bool has_committed = false;
  std::string cause{};  ///< why it has not
};

/// One rank's view of a sync that went well.
struct DBG_API SyncReport {
  std::int64_t version = 0;     ///< of the model that the consumers have now
  std::int64_t generation = 0;  ///< of the sync; counts failed ones too
  std::uint64_t total_bytes = 0;
  std::uint64_t sent_bytes = 0;  ///< by this rank, control messages included
  std::uint64_t num_weights = 0;
  std::uint64_t num_buckets = 0;
  int num_senders = 0;
  int world_size = 0;
  bool group_was_made = false;  ///< false: that of the sync before served again

  double seconds = 0;          ///< from the call to its return
  double begin_seconds = 0;    ///< until all ranks were there and the group was made
  double produce_seconds = 0;  ///< in the source's or the sink's own code
  double pack_seconds = 0;     ///< copying, and digests
  double wire_seconds = 0;     ///< the wire's thread at work; runs beside the two above
  double wait_seconds = 0;     ///< the calling thread waiting for the wire or for other ranks
  std::uint64_t most_buckets_in_use = 0;

  /// With per-weight digests and a sync before: how many weights have other values now.
  std::optional<std::uint64_t> num_changed{};
  /// On the root.
  std::vector<ConsumerCommit> consumers{};
  /// By the cost model, where the options say how fast the links are; and which link it takes for the limit.
  std::optional<double> predicted_seconds{};
  std::string predicted_limit{};

  /// Bytes a second, as each consumer got them, between the begin and the return.
  double bandwidth() const noexcept;

  /// A few lines for people.
  std::string describe() const;
};

}  // namespace dbg
