// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Lets a Dumper agree with the other ranks of a World.
#include "dbg/dumper.h"
#include "dbg/runtime.h"
#include "dbg/world.h"
#include "dump/dumper_impl.h"
#include "global/store_exp_name_board.h"

namespace dbg {

void Dumper::attach(const World& world) {
  if (world.world_size() == 1) return;
  StoreExpNameBoard board(world);
  impl_->agree_on_exp_name(board);
}

void attach(const World& world) {
  Dumper::global().attach(world);
}

}  // namespace dbg
