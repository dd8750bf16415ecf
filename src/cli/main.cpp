// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The program: reads the command line and runs a command.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "dbg/version.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Says where two runs of a libtorch model part.", "dbg");
  app.set_version_flag("--version", std::string(dbg::version()));
  app.require_subcommand(1);
  app.footer("Commands have their own help: dbg compare --help");
  const std::vector<dbg::cli::Command> commands = {dbg::cli::add_compare(app), dbg::cli::add_inspect(app),
                                                   dbg::cli::add_completion(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    const std::string first = argc > 1 ? argv[1] : "-";
    const auto is_first = [&first](const CLI::App* command) { return command->get_name() == first; };
    const bool is_no_command = first.rfind('-', 0) != 0 && app.get_subcommands(is_first).empty();
    dbg::cli::complain(is_no_command ? "'" + first + "' is no command" : error.what());
    dbg::cli::complain("see dbg --help, dbg compare --help, dbg inspect --help");
    return dbg::cli::kBroken;
  }
  for (const dbg::cli::Command& command : commands) {
    if (const int status = command(); status >= 0) return status;
  }
  return dbg::cli::kBroken;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    dbg::cli::complain(error.what());
    return dbg::cli::kBroken;
  }
}
