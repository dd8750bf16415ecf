// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Runs the program `dbg` as a user would.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
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

inline std::string program_line(const std::vector<std::string>& arguments, const std::string& before) {
  std::string line = before + " " + shell_quoted(std::string(std::getenv("DBG_TEST_BINARY_DIR")) + "/src/cli/dbg");
  for (const std::string& argument : arguments) line += " " + shell_quoted(argument);
  return line + " </dev/null";
}

inline int exit_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Runs `dbg` with these arguments; `before` stands in front of it in the shell's line (variables).
inline ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& before = "") {
  const TempFolder folder;
  const std::string line = program_line(arguments, before) + " >" + shell_quoted((folder / "out").string()) + " 2>" +
                           shell_quoted((folder / "err").string());
  const int status = std::system(line.c_str());
  const auto text_of = [&folder](const char* name) {
    std::ifstream file(folder / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  };
  return {exit_status(status), text_of("out"), text_of("err")};
}

/// A terminal that keeps what is written to it.
class Terminal {
 public:
  Terminal() : terminal_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0) {
      throw std::runtime_error("there are no terminals to be had");
    }
    name_ = ::ptsname(terminal_);
    // Held open, or reading would end before the program came.
    programs_end_ = ::open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    reader_ = std::thread([this] {
      char bytes[4096];
      for (ssize_t got = 0; (got = ::read(terminal_, bytes, sizeof bytes)) > 0;) {
        seen_.append(bytes, static_cast<std::size_t>(got));
      }
    });
  }
  ~Terminal() { end(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  const std::string& name() const { return name_; }
  int programs_end() const { return programs_end_; }

  /// All that was written. Nobody else may still have the terminal open.
  const std::string& end() {
    if (reader_.joinable()) {
      ::close(programs_end_);  // now reading ends
      reader_.join();
      ::close(terminal_);
    }
    return seen_;
  }

 private:
  int terminal_;
  int programs_end_ = -1;
  std::string name_;
  std::string seen_;
  std::thread reader_;
};

/// Runs `dbg` where a terminal is its output, and its stderr: both come as `out`.
inline ProgramResult run_program_on_terminal(const std::vector<std::string>& arguments, const std::string& before) {
  Terminal terminal;
  const std::string line = program_line(arguments, before) + " >" + shell_quoted(terminal.name()) + " 2>&1";
  const int status = std::system(line.c_str());
  return {exit_status(status), terminal.end(), ""};
}

}  // namespace dbg::test
