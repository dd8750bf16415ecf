// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Keeps ranks that are threads of one process from meeting inside torch's Flight Recorder of gloo.
#pragma once

#include "distributed/group_half.h"

namespace dbg::distributed {

/// While one lives, this thread may start an operation of gloo.
///
/// The recorder keeps a map of the groups it has seen, looks into it and adds to it without a lock (torch 2.11,
/// FlightRecorder::recordWithResetEnabled): when two threads start the first operations of two groups at once, the
/// process ends. So the first operation of a half is started alone in the process, and the others among themselves. Not
/// for what waits inside (torch's comparing wrapper), since others could not start what it waits for.
/// Threads: each its own. Source: a crash in `std::map` below `ProcessGroupGloo::enqueue`, four ranks as threads.
class RecorderGate {
 public:
  explicit RecorderGate(GroupHalf& half);
  ~RecorderGate();
  RecorderGate(const RecorderGate&) = delete;
  RecorderGate& operator=(const RecorderGate&) = delete;

 private:
  enum class Way { among_others, alone };
  GroupHalf& half_;
  Way way_;
};

}  // namespace dbg::distributed
