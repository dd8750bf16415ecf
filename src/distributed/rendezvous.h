// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The handshake before a group is made: all members are there, of one opinion, and agree on a generation; or all hear
// why not.
//
// Under `<prefix>/hs/<name>/` in the store, values being JSON:
//   r<rank>@<ranks>  a member's record, by the group's ranks: groups of one name may share members. After it gave up, with
//               "gone": why. Deleted by the member when all went well.
//   o<rank>     its record again, whatever the ranks: which group of this name it makes at the moment. So that those who
//               mean the same group by unlike lists find out.
//   m/<nonce>   the mailbox of the member with that nonce: {"prepare": <leader's nonce>} or a failure
//   a/<nonce>   that member has read "prepare"
//   g/<nonce>   of the leader (first in the list): the generation, once all members have answered
// A nonce is drawn per attempt, so that what an earlier run or a failed attempt left is never taken for an answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "distributed/tracked_store.h"

namespace dbg::distributed {

/// What a member brings to the handshake.
struct HandshakeRequest {
  std::string name;        ///< of the group, `tp`
  std::vector<int> ranks;  ///< global; the position is the rank in the group
  int rank_in_group = 0;
  std::chrono::milliseconds timeout{0};
  /// What else has to be equal on all members, in words: `{"device backend", "gloo"}`. Versions are added.
  std::map<std::string, std::string> settings = {};
  bool binds_to_loopback = false;  ///< refused when the members are on several machines
};

/// What the members agreed on.
struct HandshakeResult {
  std::int64_t generation = 0;  ///< how many groups of this name and these ranks were made before
  /// The leader's, drawn for this attempt: what is kept under it is never taken for what other members left.
  std::string nonce{};
  /// Holds what has to stay until the group is closed: the leader's word, which members may not have read yet.
  c10::intrusive_ptr<TrackedStore> keys;
};

/// Meets the other members. Every member throws when one of them does, within the timeout and a second.
/// Collective: all members, once for each group of that name; several names may be under way at once.
/// Throws: CommError: handshake_mismatch with both values, peer_missing naming who never came, peer_lost naming who
/// came and fell silent, store_down.
HandshakeResult shake_hands(const c10::intrusive_ptr<c10d::Store>& store, const std::string& prefix,
                            const HandshakeRequest& request);

}  // namespace dbg::distributed
