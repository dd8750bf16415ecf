// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The name of a record's file: pairs `key=value` joined by `___`, then `.pt`. Pure text, no files.
//
//   step=0___rank=0___dump_index=1___name=attn_out___recompute_status=disabled___layer_id=3.pt
//
// Version 1. Order: step, rank, dump_index, name, recompute_status, the call's tags, the context's, then (opt-in) the
// parallel ranks. Values print as Python's str(). What would break a path or the grammar is percent-escaped:
//   - in keys and values: `/`, NUL, control characters, DEL, a `_` that would begin a run of three (`a___b` is written
//     `a__%5Fb`), and at the ends of a key or value the `_` that would touch the separator;
//   - in keys also `=`; in front of the whole name a leading dot;
//   - `%` itself only where two hex digits follow it, so that `50%` stays readable and every name reads back exactly.
// A name longer than 255 bytes: the longest values are cut and end in `~` and 16 hex digits of the whole value's hash,
// so that equal values keep equal names in every run. The record's meta always keeps the exact text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dbg/tags.h"

namespace dbg {

/// The longest file name that Linux file systems take.
inline constexpr std::size_t kLongestRecordName = 255;

/// One pair of a record's name, borrowed.
using RecordNamePair = std::pair<std::string_view, TagView>;

/// The file name of a record, `.pt` included; at most `kLongestRecordName` bytes of valid path component.
std::string format_record_name(const std::vector<RecordNamePair>& pairs);

/// The pairs of a record's file name, unescaped, as text in order; nullopt unless it is one: it ends in `.pt`, every
/// piece has a `=`, and step, rank, dump_index (integers) and name are there.
std::optional<Tags> parse_record_name(std::string_view file_name);

}  // namespace dbg
