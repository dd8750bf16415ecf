// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One experiment's name for all ranks of a World, by its store.
//
// One key, `<key prefix>/exp_name`, and under torchelastic `<key prefix>/exp_name/<launch_key_of_all_nodes()>`; its
// value is the name. Set once by compareSet, by whoever comes first, and left there: a late rank may still ask.
#pragma once

#include <chrono>
#include <string>

#include "dbg/world.h"
#include "dump/exp_name.h"

namespace dbg {

/// Threads: one thread at a time; several boards may claim at once.
class StoreExpNameBoard : public ExpNameBoard {
 public:
  /// A claim takes at most 5 seconds, or the world's timeout where that is shorter.
  explicit StoreExpNameBoard(const World& world);

  /// `claimed_ns` stays 0: the clocks of nodes differ.
  /// Throws: CommError (store_down) when the store fails, does not answer in time, or holds what is no folder's name. A
  /// proposal that got no answer may have won all the same.
  ExpNameClaim claim(const std::string& proposal) override;

 private:
  World world_;
  std::string key_;
  std::chrono::milliseconds limit_;
};

}  // namespace dbg
