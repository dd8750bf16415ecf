// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reckons the time that is left.
#include "cli/progress.h"

#include "base/formatted.h"

namespace dbg::cli {

std::optional<std::string> Progress::line(std::size_t done, std::size_t all, Clock::time_point now) {
  using Seconds = std::chrono::duration<double>;
  constexpr Seconds kSilence(1.0);
  constexpr Seconds kPause(0.2);
  if (now - started_ < kSilence || now - shown_ < kPause || done == 0) return std::nullopt;
  shown_ = now;
  has_shown_ = true;
  const double left = Seconds(now - started_).count() / static_cast<double>(done) * static_cast<double>(all - done);
  return formatted("{} of {} pairs, {:.0f} s left", done, all, left);
}

}  // namespace dbg::cli
