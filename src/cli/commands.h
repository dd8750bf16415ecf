// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The program's commands: what each adds to the command line. Each returns what runs it and gives the exit status.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace dbg::cli {

// Exit statuses of all commands.
inline constexpr int kFine = 0;
inline constexpr int kDifferent = 1;  ///< something failed, or was found
inline constexpr int kBroken = 2;     ///< something could not be done

using Command = std::function<int()>;

Command add_compare(CLI::App& app);
Command add_completion(CLI::App& app);
Command add_inspect(CLI::App& app);

}  // namespace dbg::cli
