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

// What is missing on the command line, and what was taken for an option's value instead: two folders and an option
// that wants a third word look alike.
std::string missing(const CLI::App& app, const CLI::RequiredError& error) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return "no command is given; there are compare, inspect and completion";
  std::string text = error.what();
  for (const CLI::Option* option : chosen.front()->get_options()) {
    if (option->get_positional() || option->results().empty() || option->get_items_expected_max() == 0) continue;
    text += "; '" + option->results().front() + "' was taken as the value of " + option->get_name();
  }
  return text;
}

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
    const auto* lack = dynamic_cast<const CLI::RequiredError*>(&error);
    dbg::cli::complain(is_no_command     ? "'" + first + "' is no command"
                       : lack != nullptr ? missing(app, *lack)
                                         : error.what());
    const auto chosen = app.get_subcommands();
    dbg::cli::complain(chosen.empty() ? "see dbg --help, dbg compare --help, dbg inspect --help"
                                      : "see dbg " + chosen.front()->get_name() + " --help");
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
