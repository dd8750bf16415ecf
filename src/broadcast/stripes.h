// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which way each byte of a bucket goes: stripes, one a sender, and the chain of ranks that each runs through.
//
// The root hands stripe s to sender s over the node's own path; sender s sends it over its card to rank s mod G of the
// first consumer node, of G consumers; that one forwards it to the rank of the same index of the next node, and to its
// neighbours. With one sender this is the plain chain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dbg::broadcast {

/// A contiguous range of a bucket.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const noexcept { return end - begin; }
  friend bool operator==(const ByteRange& a, const ByteRange& b) { return a.begin == b.begin && a.end == b.end; }
};

/// The stripe's part of a bucket of `length` bytes. The stripes of a bucket follow each other, differ by 64 bytes at
/// most (its last one by less than that too), and may be empty.
ByteRange stripe_range(std::uint64_t length, int num_stripes, int stripe) noexcept;

/// One rank's place in one stripe's tree.
struct StripeLink {
  int stripe = 0;
  int from = -1;          ///< -1: the root, which has it
  std::vector<int> to{};  ///< in the order of sending: the far one first
};

/// One rank's links, by stripe; stripes that it has nothing to do with are left out.
/// `node_ids` by rank, senders first. A rank of consumers is in all stripes, sender s in stripe s, the root in all.
std::vector<StripeLink> stripe_links(const std::vector<std::string>& node_ids, int num_senders, int rank);

/// The way of control messages, to all ranks: that of stripe 0, and from the root to the relays.
StripeLink control_link(const std::vector<std::string>& node_ids, int num_senders, int rank);

}  // namespace dbg::broadcast
