// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where dbg's lines go: one writer, with a handler that the client can replace.
#pragma once

#include <functional>
#include <string_view>

#include "dbg/export.h"

namespace dbg {

/// How much a line matters. A `warning` says that something was left out, an `error` that a part is off from here on.
enum class LogLevel { debug, info, warning, error };

/// Receives one line, without a newline, prefix included (`[Dumper, rank=0, t=1730000000.123] ...`).
/// Threads: called from any thread, several at once, with no lock of dbg's held. What it throws is swallowed; a line
/// that it causes itself goes to stderr.
using LogHandler = std::function<void(LogLevel level, std::string_view line)>;

/// Replaces the handler; an empty one restores the default, which writes lines from `info` on to stderr.
/// (Not stdout: that belongs to the program being watched.)
/// Threads: safe to call from any thread. A line being handled at the moment still goes to the old handler.
DBG_API void set_log_handler(LogHandler handler);

/// Drops lines below `level`. Default: `info`.
/// Threads: safe to call from any thread.
DBG_API void set_log_level(LogLevel level) noexcept;

}  // namespace dbg
