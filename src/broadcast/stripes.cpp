// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Lays out the chains.
#include "broadcast/stripes.h"

#include <algorithm>
#include <cstddef>

namespace dbg::broadcast {
namespace {

constexpr std::uint64_t kStep = 64;  // a cache line

// Consumers by node, nodes in the order in which they appear, the senders' own node first: it is nearest.
std::vector<std::vector<int>> consumer_nodes(const std::vector<std::string>& node_ids, int num_senders) {
  std::vector<std::vector<int>> nodes;
  std::vector<std::string> names;
  for (int rank = num_senders; rank < static_cast<int>(node_ids.size()); ++rank) {
    const std::string& name = node_ids[static_cast<std::size_t>(rank)];
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      names.push_back(name);
      nodes.push_back({rank});
    } else {
      nodes[static_cast<std::size_t>(found - names.begin())].push_back(rank);
    }
  }
  const auto own = std::find(names.begin(), names.end(), node_ids.front());
  if (own != names.end())
    std::rotate(nodes.begin(), nodes.begin() + (own - names.begin()), nodes.begin() + (own - names.begin()) + 1);
  return nodes;
}

// The rank of a node that takes the stripe from the node before.
int entry_of(const std::vector<int>& node, int stripe) {
  return node[static_cast<std::size_t>(stripe) % node.size()];
}

StripeLink link_of(const std::vector<std::vector<int>>& nodes, int stripe, int rank) {
  StripeLink link;
  link.stripe = stripe;
  if (rank == 0 && stripe != 0) {
    link.to = {stripe};
    return link;
  }
  if (rank == stripe) {
    link.from = stripe == 0 ? -1 : 0;
    link.to = {entry_of(nodes.front(), stripe)};
    return link;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (std::find(nodes[i].begin(), nodes[i].end(), rank) == nodes[i].end()) continue;
    const int entry = entry_of(nodes[i], stripe);
    if (rank != entry) {
      link.from = entry;
      return link;
    }
    link.from = i == 0 ? stripe : entry_of(nodes[i - 1], stripe);
    if (i + 1 < nodes.size()) link.to.push_back(entry_of(nodes[i + 1], stripe));
    for (const int neighbour : nodes[i]) {
      if (neighbour != rank) link.to.push_back(neighbour);
    }
  }
  return link;
}

}  // namespace

ByteRange stripe_range(std::uint64_t length, int num_stripes, int stripe) noexcept {
  const auto count = static_cast<std::uint64_t>(num_stripes);
  const auto number = static_cast<std::uint64_t>(stripe);
  const std::uint64_t steps = (length + kStep - 1) / kStep;
  const auto edge = [&](std::uint64_t i) {
    return std::min(length, (steps / count * i + std::min(steps % count, i)) * kStep);
  };
  return {edge(number), edge(number + 1)};
}

std::vector<StripeLink> stripe_links(const std::vector<std::string>& node_ids, int num_senders, int rank) {
  const auto nodes = consumer_nodes(node_ids, num_senders);
  std::vector<StripeLink> links;
  for (int stripe = 0; stripe < num_senders; ++stripe) {
    const bool is_relay_of_another = rank > 0 && rank < num_senders && rank != stripe;
    if (!is_relay_of_another) links.push_back(link_of(nodes, stripe, rank));
  }
  return links;
}

StripeLink control_link(const std::vector<std::string>& node_ids, int num_senders, int rank) {
  if (rank > 0 && rank < num_senders) return {0, 0, {}};
  StripeLink link = link_of(consumer_nodes(node_ids, num_senders), 0, rank);
  if (rank == 0) {
    for (int relay = 1; relay < num_senders; ++relay) link.to.push_back(relay);
  }
  return link;
}

}  // namespace dbg::broadcast
