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
  if (now - started_ < pace_.silence || now - shown_ < pace_.pause) return std::nullopt;
  shown_ = now;
  if (done == 0) return formatted("0 of {} pairs, {:.0f} s so far", all, Seconds(now - started_).count());
  const double left = Seconds(now - started_).count() / static_cast<double>(done) * static_cast<double>(all - done);
  return formatted("{} of {} pairs, {:.0f} s left", done, all, left);
}

ProgressLine::ProgressLine(int descriptor, ProgressPace pace)
    : descriptor_(descriptor), pace_(pace), progress_(Progress::Clock::now(), pace), thread_([this] { beat(); }) {}

ProgressLine::~ProgressLine() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    take_away();
  }
  ends_.notify_one();
  thread_.join();
}

void ProgressLine::show(std::size_t done, std::size_t all) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  all_ = all;
  if (done == all) {
    take_away();
  } else {
    draw();
  }
}

void ProgressLine::draw() {
  const auto line = progress_.line(done_, all_, Progress::Clock::now());
  if (!line) return;
  ::dprintf(descriptor_, "%s%s", kEmptyLine, line->c_str());
  is_there_ = true;
}

void ProgressLine::beat() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, pace_.beat, [this] { return is_over_; })) {
    if (done_ < all_) draw();
  }
}

void ProgressLine::take_away() {
  if (is_there_) ::dprintf(descriptor_, "%s", kEmptyLine);
  is_there_ = false;
}

}  // namespace dbg::cli
