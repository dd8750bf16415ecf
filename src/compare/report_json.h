// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The report for programs: one JSON document.
#pragma once

#include <string>

#include "dbg/compare.h"

namespace dbg::compare {

/// The report as JSON. `docs/compare.md` describes it.
///
/// Format, version 1. An object:
///
///     {"format": "dbg compare", "version": 1, "summary": {...}, "pairs": [{...}, ...], "unpaired": [...],
///      "unreadable": [...], "steps": [...]}
///
/// - `summary` holds counts, `exit_code`, and `first_bits`, `first_beyond`, `first_jump`: null or
///   `{"pair": index into pairs, "last_good": index or null}`.
/// - Numbers that JSON has no words for are the texts "nan", "inf" and "-inf"; what is not known is null.
/// - A reader must ignore keys that it does not know; a change that such a reader can't bear has another version.
std::string report_json(const CompareReport& report);

}  // namespace dbg::compare
