// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Has this process been forked since? Locks and threads of the parent are not to be trusted in a child.
#pragma once

namespace dbg {

/// Grows by one in a forked child. Threads: safe to call from any thread.
unsigned fork_generation() noexcept;

}  // namespace dbg
