// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The model's few sums.
#include "broadcast/cost_model.h"

#include <algorithm>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::broadcast {

CostEstimate estimate_cost(const CostInput& input) {
  const auto require = [](bool is_right, const char* name, double value) {
    if (!is_right) throw ConfigError(formatted("cost model: {} is {}, which makes no sense.", name, value));
  };
  require(input.num_senders >= 1, "num_senders", input.num_senders);
  require(input.consumer_nodes >= 1, "consumer_nodes", input.consumer_nodes);
  require(input.consumers_per_node >= 1, "consumers_per_node", input.consumers_per_node);
  require(input.cards_per_consumer_node >= 1, "cards_per_consumer_node", input.cards_per_consumer_node);
  require(input.card_rate > 0, "card_rate", input.card_rate);
  require(input.local_rate >= 0, "local_rate", input.local_rate);
  require(input.bucket_bytes > 0, "bucket_bytes", static_cast<double>(input.bucket_bytes));
  require(input.chunk_bytes > 0, "chunk_bytes", static_cast<double>(input.chunk_bytes));

  const auto total = static_cast<double>(input.total_bytes);
  const double stripe = total / input.num_senders;
  const int entries = std::min({input.consumers_per_node, input.cards_per_consumer_node, input.num_senders});
  const int busiest = (input.num_senders + entries - 1) / entries;

  const double senders = stripe / input.card_rate;
  const double consumers = stripe * busiest / input.card_rate;
  double local = 0;
  if (input.local_rate > 0) {
    const double handed_out = stripe * (input.num_senders - 1) / input.local_rate;
    const double fanned_out = stripe * busiest * (input.consumers_per_node - 1) / input.local_rate;
    local = std::max(handed_out, fanned_out);
  }

  CostEstimate cost;
  cost.stream_seconds = std::max({senders, consumers, local});
  cost.limit = local > std::max(senders, consumers) ? "path within a node"
               : consumers > senders                ? "cards of the consumers"
                                                    : "cards of the senders";
  // A chunk has to be there whole before it goes on; the first hop's time is part of the stream.
  const double chunk = std::min(static_cast<double>(input.chunk_bytes), stripe);
  const double chunk_local = input.local_rate > 0 ? chunk / input.local_rate : 0;
  const int local_hops = (input.num_senders > 1 ? 1 : 0) + (input.consumers_per_node > 1 ? 1 : 0);
  cost.fill_seconds = (input.consumer_nodes - 1) * (chunk / input.card_rate + input.hop_seconds) + input.hop_seconds +
                      local_hops * (chunk_local + input.hop_seconds);
  const std::uint64_t buckets = (input.total_bytes + input.bucket_bytes - 1) / input.bucket_bytes;
  cost.bucket_seconds = static_cast<double>(buckets) * input.bucket_seconds;
  cost.seconds = cost.stream_seconds + cost.fill_seconds + cost.bucket_seconds;
  return cost;
}

}  // namespace dbg::broadcast
