// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The report as a page: one file that opens offline, for a browser of today.
#pragma once

#include <string>
#include <string_view>

#include "dbg/compare.h"

namespace dbg::compare {

/// The page: headline, chart of rel_diff over the order of dumping, a table to sort and filter, and pictures of what
/// failed. It loads nothing, and text from records is shown as text only.
std::string report_html(const CompareReport& report);

/// JSON that may stand inside a `<script>`: no `<`, `>` or `&`, and no line separators that JavaScript would take for
/// an end of line.
std::string json_for_script(std::string_view json);

/// The page around its data; the data stands where `@DATA@` does.
std::string_view page_template() noexcept;

}  // namespace dbg::compare
