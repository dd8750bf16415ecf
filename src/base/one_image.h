// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How many copies of dbg there are in this process: each has a Dumper, counters and a log of its own.
#pragma once

#include <string>
#include <vector>

namespace dbg::base {

/// The paths of the loaded images (the program, shared objects, however they were opened) that hold a copy of dbg,
/// found by a note of the linker's that each copy carries. Waits for the dynamic loader: not for the way of a record.
/// Threads: safe to call from any thread.
std::vector<std::string> images_with_dbg();

}  // namespace dbg::base
