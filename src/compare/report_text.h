// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The report for a terminal: the headline, a table, what was left out, and what to do next.
#pragma once

#include <cstddef>
#include <string>

#include "dbg/compare.h"

namespace dbg::compare {

struct TextOptions {
  bool is_coloured = false;
  /// Every pair, not only those around the landmarks and those that failed.
  bool shows_all = false;
  /// Rows of the table at most, unless all are shown.
  std::size_t most_rows = 30;
  /// A page is written too; where none is, the report says how to have one.
  bool has_page = false;
};

/// The report as lines, each with its newline. Names from records are made harmless.
std::string report_text(const CompareReport& report, const TextOptions& options = {});

}  // namespace dbg::compare
