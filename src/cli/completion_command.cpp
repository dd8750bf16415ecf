// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// `dbg completion`: what a shell sources to complete the program's commands and options.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/formatted.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace dbg::cli {
namespace {

// All options with two dashes, `--help` among them.
std::string long_options(const CLI::App& command) {
  std::string words;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words += (words.empty() ? "--" : " --") + name;
  }
  return words;
}

// Words for the first place and for what begins with a dash; files and folders, which bash knows itself, else.
std::string bash_completion(const CLI::App& app) {
  std::string commands;
  std::string cases = formatted("    *) words='{}' ;;\n", long_options(app));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += (commands.empty() ? "" : " ") + command->get_name();
    cases.insert(0, formatted("    {}) words='{}' ;;\n", command->get_name(), long_options(*command)));
  }
  return formatted(
      "# bash: source <(dbg completion bash)\n"
      "_dbg() {{\n"
      "  local words\n"
      "  case ${{COMP_WORDS[1]}} in\n"
      "{}"
      "  esac\n"
      "  [ \"$COMP_CWORD\" != 1 ] || words+=' {}'\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" = 1 ] || [[ $2 == -* ]]; then mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$2\"); "
      "fi\n"
      "}}\n"
      "complete -o default -F _dbg dbg\n",
      cases, commands);
}

}  // namespace

Command add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print what makes a shell complete commands and options");
  command->add_option("SHELL", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  command->footer("To have it in every shell: echo 'source <(dbg completion bash)' >> ~/.bashrc");
  return [command, shell, &app] {
    if (!command->parsed()) return -1;
    print(bash_completion(app));
    return kFine;
  };
}

}  // namespace dbg::cli
