// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What every thread of this process is doing, as text: for the report of a test that hangs.
#pragma once

#include <string>

namespace dbg::test {

/// The stacks of all threads but the caller's, each under its thread's name. A thread that does not answer a signal
/// within a second (it blocks signals, or is stuck in the kernel) is listed as such.
/// Names of functions that the binary does not export come from addr2line where that is installed.
/// Threads: safe to call from any thread, one caller at a time goes on.
std::string stacks_of_other_threads();

/// Names the calling thread, at most 15 characters, as the stacks shall show it.
void name_this_thread(const std::string& name);

}  // namespace dbg::test
