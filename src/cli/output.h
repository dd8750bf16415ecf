// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where the program's words go: the terminal, with colours or without, and files.
#pragma once

#include <string>
#include <string_view>

namespace dbg::cli {

/// Writes to stdout; throws IoError when that fails (a full disk behind a redirection).
void print(std::string_view text);
/// Writes `dbg: text` to stderr.
void complain(std::string_view text);

/// Whether a line can be rewritten and coloured there: it is a terminal, and `TERM` names one that is not dumb.
bool is_terminal(int descriptor);

/// Whether stdout wants colours: `choice` is auto, always or never; auto means a terminal, and no NO_COLOR.
bool wants_colour(std::string_view choice);

/// Why no file can be written to this path, to be said before the work and not after it; empty when it seems it can.
std::string output_problem(const std::string& path);

/// Why no file can be read at this path, where a folder stands in a file's place; empty otherwise.
std::string input_problem(const std::string& path);

/// Puts `text` in the file, for its owner only; `-` is stdout. A file that is there is replaced when the new one is
/// whole. Throws: IoError.
void write_file(const std::string& path, std::string_view text);

}  // namespace dbg::cli
