// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writing to a descriptor without the signals that a failed write sends, and without waiting for a reader.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace dbg::base {

/// write(2), where a reader that is gone (EPIPE) and a file beyond RLIMIT_FSIZE (EFBIG) are errors and no signals,
/// which would end the program. Installs no handler. A signal that was pending before stays, and so does the program's
/// own handling of it. Returns what write returns, with its errno. Threads: safe to call from any thread.
ssize_t write_quietly(int descriptor, const void* data, std::size_t size) noexcept;

/// The same for a descriptor that somebody else reads (a pipe, a socket, a terminal): writes what it takes at once.
/// Waits `patience_ms` at most for it to take anything. Returns how much was written, or -1 with the errno: EAGAIN when
/// it took nothing.
ssize_t write_without_waiting(int descriptor, const void* data, std::size_t size, int patience_ms) noexcept;

}  // namespace dbg::base
