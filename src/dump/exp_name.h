// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The experiment's name when nobody gave one: whoever comes first proposes it, the others of the same launch take it,
// and nobody waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "dbg/participant.h"

namespace dbg {

/// `dump_` + UTC `YYYYmmdd_HHMMSS` + `_` + 3 digits of milliseconds + 3 digits of `random`.
std::string propose_exp_name(std::chrono::system_clock::time_point now, std::uint32_t random);

/// The name that a launch uses, and when it was claimed (nanoseconds since the epoch, by the file system's clock where
/// a file holds the claim): what is older belongs to an earlier run.
struct ExpNameClaim {
  std::string exp_name;
  std::int64_t claimed_ns = 0;
  bool is_first = true;  ///< the proposal won: nobody of this launch came before
};

/// Agrees on one name per launch.
class ExpNameBoard {
 public:
  virtual ~ExpNameBoard() = default;
  /// Claims `proposal`, or another name for it where that is another launch's; or learns what was claimed before. Never
  /// waits for a peer. Throws: IoError or CommError when it can't be asked.
  virtual ExpNameClaim claim(const std::string& proposal) = 0;
};

/// The board as files in `dir/.dbg_exp_names_<user id>/`, created exclusively.
///
/// A claim is `<key>.<n>`. Its lines are the name; who claimed it (host, boot, pid namespace, pid, start time of the
/// process in clock ticks since boot); and when, in nanoseconds since boot. Each rank that takes part leaves
/// `<key>.<n>.rank<R>` with its own process's line. `name.<name>`, with the line of the process that took it, makes a
/// name one launch's: a proposal that is taken gets `_2`, `_3`, ...
///
/// The newest claim of the key is ours, unless it is of another launch: our rank's place in it is another process's, or
/// its claimant ran here, is gone, and was so before we were there (ranks of one launch live at the same time). Then an
/// older one may be ours, or `n + 1` is claimed.
/// Threads: one thread at a time; several boards of one process may claim at once.
class FileExpNameBoard : public ExpNameBoard {
 public:
  /// `key`: what one launch shares (`launch_key()`).
  FileExpNameBoard(const std::string& dir, std::string key, int rank);
  ExpNameClaim claim(const std::string& proposal) override;

 private:
  std::string folder_;
  std::string key_;
  int rank_;
};

/// A board for a participant that is alone in its launch: every proposal wins.
class LocalExpNameBoard : public ExpNameBoard {
 public:
  ExpNameClaim claim(const std::string& proposal) override;
};

/// What one launch shares: torchelastic's run id and restart count with the master's address and port, else the parent
/// process with its start time. A readable part and a hash of the whole, of letters, digits and `_`; at most 120 bytes.
std::string launch_key();

/// What a launch shares on all its nodes, as far as the environment says: torchelastic's run id and restart count, in
/// the form above; empty without. (Parents are of one node, and nodes may spell the master's address differently.)
std::string launch_key_of_all_nodes();

/// Whether the environment says that this launch spans several nodes, whose clocks and file systems may differ.
bool launch_spans_nodes();

}  // namespace dbg
