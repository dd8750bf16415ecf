// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A report in words.
#include "dbg/sync_report.h"

#include "base/formatted.h"

namespace dbg {

double SyncReport::bandwidth() const noexcept {
  const double moving = seconds - begin_seconds;
  return moving > 0 ? static_cast<double>(total_bytes) / moving : 0;
}

std::string SyncReport::describe() const {
  constexpr double kMega = 1e6;
  std::string text = formatted(
      "version {}: {} weights, {:.2f} MB in {} buckets, {} of {} ranks send, {:.3f} s ({:.1f} MB/s)\n"
      "  begin {:.3f} s{}, source or sink {:.3f} s, packing {:.3f} s, waiting {:.3f} s; wire {:.3f} s beside them, "
      "{:.2f} MB sent",
      version, num_weights, static_cast<double>(total_bytes) / kMega, num_buckets, num_senders, world_size, seconds,
      bandwidth() / kMega, begin_seconds, group_was_made ? " (a new group)" : "", produce_seconds, pack_seconds,
      wait_seconds, wire_seconds, static_cast<double>(sent_bytes) / kMega);
  if (num_changed) text += formatted("\n  {} of {} weights have changed", *num_changed, num_weights);
  if (predicted_seconds) {
    text += formatted("\n  predicted {:.3f} s, measured {:.3f} s; the limit is taken to be the {}", *predicted_seconds,
                      seconds - begin_seconds, predicted_limit);
  }
  for (const ConsumerCommit& consumer : consumers) {
    text += formatted("\n  {}: {}", consumer.consumer,
                      consumer.has_committed ? "committed" : "NOT committed: " + consumer.cause);
  }
  return text;
}

}  // namespace dbg
