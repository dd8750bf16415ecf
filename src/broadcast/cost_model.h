// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How long a broadcast takes, from the rates of its links: a pure model, for clusters that no test machine has.
#pragma once

#include <cstdint>
#include <string>

namespace dbg::broadcast {

/// What a broadcast runs over. Rates in bytes a second, each direction.
struct CostInput {
  std::uint64_t total_bytes = 0;
  int num_senders = 1;
  int consumer_nodes = 1;
  int consumers_per_node = 1;
  int cards_per_consumer_node = 1;
  double card_rate = 0;   ///< of one network card
  double local_rate = 0;  ///< of the path between two ranks of a node; 0: no limit
  std::uint64_t bucket_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  double hop_seconds = 0;     ///< the latency of one message
  double bucket_seconds = 0;  ///< what each bucket costs beside its bytes: header, agreement
};

struct CostEstimate {
  double seconds = 0;
  /// `cards of the senders`, `cards of the consumers`, `path within a node`.
  std::string limit;
  double stream_seconds = 0;  ///< the bytes through the limiting link
  double fill_seconds = 0;    ///< until the first chunk is at the last rank
  double bucket_seconds = 0;
};

/// Predicts the striped chains of stripes.h; with one sender the chain.
///
/// Each of S stripes carries a share of 1/S and needs a card at its sender and one at its entry of each consumer node;
/// min(consumers, cards) entries of a node share S stripes, the busiest taking ceil(S / entries). A node's card sends
/// to the next node while it receives, so that more nodes only add to the filling of the pipe.
/// Throws: ConfigError when a number makes no sense.
CostEstimate estimate_cost(const CostInput& input);

}  // namespace dbg::broadcast
