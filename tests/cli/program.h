// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Runs the program `dbg` as a user would.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace dbg::test {

struct ProgramResult {
  int status = -1;
  std::string out;
  std::string err;
};

inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Runs `dbg` with these arguments; `before` stands in front of it in the shell's line (variables).
inline ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& before = "") {
  const TempFolder folder;
  std::string line = before + " " + shell_quoted(std::string(std::getenv("DBG_TEST_BINARY_DIR")) + "/src/cli/dbg");
  for (const std::string& argument : arguments) line += " " + shell_quoted(argument);
  line +=
      " >" + shell_quoted((folder / "out").string()) + " 2>" + shell_quoted((folder / "err").string()) + " </dev/null";
  const int status = std::system(line.c_str());
  const auto text_of = [&folder](const char* name) {
    std::ifstream file(folder / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of("out"), text_of("err")};
}

}  // namespace dbg::test
