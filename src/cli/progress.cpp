// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reckons the time that is left, and draws the line.
#include "cli/progress.h"

#include <cstdio>

#include "base/formatted.h"

namespace dbg::cli {
namespace {

// To the line's beginning, and erase to its end.
constexpr const char* kEmptyLine = "\r\x1b[K";

}  // namespace

std::optional<std::string> Progress::line(std::size_t done, std::size_t all, Clock::time_point now) {
  using Seconds = std::chrono::duration<double>;
  if (now - started_ < pace_.silence || now - shown_ < pace_.pause || done == 0) return std::nullopt;
  shown_ = now;
  const double left = Seconds(now - started_).count() / static_cast<double>(done) * static_cast<double>(all - done);
  return formatted("{} of {} pairs, {:.0f} s left", done, all, left);
}

ProgressLine::ProgressLine(int descriptor, ProgressPace pace)
    : descriptor_(descriptor), progress_(Progress::Clock::now(), pace) {}

ProgressLine::~ProgressLine() {
  take_away();
}

void ProgressLine::show(std::size_t done, std::size_t all) {
  if (done == all) {
    take_away();
  } else if (const auto line = progress_.line(done, all, Progress::Clock::now())) {
    ::dprintf(descriptor_, "%s%s", kEmptyLine, line->c_str());
    is_there_ = true;
  }
}

void ProgressLine::take_away() {
  if (is_there_) ::dprintf(descriptor_, "%s", kEmptyLine);
  is_there_ = false;
}

}  // namespace dbg::cli
