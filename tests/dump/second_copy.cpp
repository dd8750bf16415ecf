// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A shared object that holds a copy of dbg, as an extension module of Python's may.
#include <atomic>
#include <string_view>

#include "dbg/dumper.h"
#include "dbg/log.h"

extern "C" [[gnu::visibility("default")]] int lines_of_second_copy(const char* folder);

// Makes a Dumper that is on. Returns how many lines this copy spent on others.
int lines_of_second_copy(const char* folder) {
  std::atomic<int> lines{0};
  dbg::set_log_handler([&lines](dbg::LogLevel, std::string_view line) {
    if (line.find("dbg is in this process 2 times, in the program itself, ") != std::string_view::npos) ++lines;
  });
  dbg::DumperConfig config;
  config.enable = true;
  config.dir = folder;
  const dbg::Dumper dumper(config);
  dbg::set_log_handler(nullptr);
  return lines;
}
