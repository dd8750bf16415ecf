// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Prints and writes.
#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::cli {
namespace {

namespace fs = std::filesystem;

void write_all(int descriptor, std::string_view text, const std::string& what) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int code = errno;
      throw IoError(formatted("{} can't be written: {}", what, base::errno_text(code)), code);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void print(std::string_view text) {
  write_all(STDOUT_FILENO, text, "the output");
}

void complain(std::string_view text) {
  std::fprintf(stderr, "dbg: %.*s\n", static_cast<int>(text.size()), text.data());
}

bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

bool wants_colour(std::string_view choice) {
  if (choice != "auto") return choice == "always";
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  return is_terminal(STDOUT_FILENO);
}

std::string output_problem(const std::string& path) {
  if (path == "-") return {};
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return formatted("'{}' is a folder; name the file to write, and BASELINE and TARGET apart from it", path);
  }
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    return formatted("'{}' can't be written: there is no folder '{}'", path, folder.string());
  }
  return {};
}

std::string input_problem(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {};
  return formatted("'{}' is a folder; name the file to read, and BASELINE and TARGET apart from it", path);
}

void write_file(const std::string& path, std::string_view text) {
  if (path == "-") {
    print(text);
    return;
  }
  std::error_code ignored;
  const bool is_plain = !fs::exists(path, ignored) || fs::is_regular_file(path, ignored);
  // Not beside a device or a pipe: /dev/null is not to be replaced.
  const std::string written = is_plain ? formatted("{}.part-{}", path, ::getpid()) : path;
  const std::string what = formatted("file '{}'", path);
  const int descriptor = ::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    const int code = errno;
    throw IoError(formatted("{} can't be written: {}", what, base::errno_text(code)), code);
  }
  int code = 0;
  try {
    write_all(descriptor, text, what);
  } catch (const IoError& error) {
    code = error.code();
  }
  if (::close(descriptor) != 0 && code == 0) code = errno;
  if (code == 0 && is_plain && ::rename(written.c_str(), path.c_str()) != 0) code = errno;
  if (code == 0) return;
  if (is_plain) ::unlink(written.c_str());
  throw IoError(formatted("{} can't be written: {}", what, base::errno_text(code)), code);
}

}  // namespace dbg::cli
