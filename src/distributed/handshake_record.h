// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What members of a group tell each other before it is made, as text for the store, and what differs between two.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/error.h"

namespace dbg::distributed {

/// One member's record.
struct HandshakeRecord {
  std::string nonce;
  int rank = 0;
  std::vector<int> ranks;
  std::map<std::string, std::string> settings;  ///< versions, backends ...: all of it has to be equal
  std::string host;
  std::string machine;  ///< the kernel's boot id: equal for all containers of a machine
  std::int64_t pid = 0;
  bool binds_to_loopback = false;
  std::string gone;  ///< why the member gave up; empty while it waits
  CommErrorKind gone_kind = CommErrorKind::peer_missing;
  std::vector<int> gone_peers;

  std::string to_json() const;
  /// nullopt for what is no record.
  static std::optional<HandshakeRecord> from_json(std::string_view text);
  /// A fresh nonce and this process's host, machine, pid.
  static HandshakeRecord of_this_process();

  /// `rank 1 (pid 42 on host)`.
  std::string who() const;
  /// Whether the process is known to be alive or dead; nullopt for another machine's.
  std::optional<bool> is_alive() const;
};

/// What differs, with both values: `rank 0 (...) has ranks [0, 1], rank 1 (...) has ranks [0, 1, 2]`. nullopt: nothing.
std::optional<std::string> difference_of(const HandshakeRecord& a, const HandshakeRecord& b);

/// A message into a member's mailbox: prepare (with the leader's nonce) or a failure.
struct HandshakeMail {
  std::string prepare;
  CommErrorKind kind = CommErrorKind::peer_missing;
  std::vector<int> peers;
  std::string cause;

  std::string to_json() const;
  static std::optional<HandshakeMail> from_json(std::string_view text);
};

}  // namespace dbg::distributed
