// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The one table of knobs: name, field, what is accepted, what it does. All else about a knob is derived from its row.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "dbg/config.h"

namespace dbg::dumping {

using KnobMember = std::variant<bool DumperConfig::*, int DumperConfig::*, std::string DumperConfig::*,
                                std::optional<std::string> DumperConfig::*>;

/// What a knob's value must be beyond its type.
enum class KnobRule {
  any,
  folder,          ///< a path: not empty, no NUL
  path_component,  ///< one path component
  filter,          ///< an expression of docs/filter.md
  server_port,     ///< a whole number up to 65535, or `reuse`
  one_of,          ///< one of the words in `accepted`, separated by `, `
};

struct KnobRow {
  std::string_view name;
  KnobMember member;
  std::string_view help;
  KnobRule rule = KnobRule::any;
  std::string_view accepted = {};  ///< in words; empty where type and bounds say it all
  int lowest = std::numeric_limits<int>::min();
  int highest = std::numeric_limits<int>::max();
};

/// All rows, in the order of DumperConfig's fields.
std::span<const KnobRow> knob_rows();
/// The row of that name, or nullptr.
const KnobRow* find_knob_row(std::string_view name);

/// `bool`, `int`, `text`, `text or none`.
std::string_view type_name(const KnobRow& row);
/// What the knob may be, in words: its own, else its type's with its bounds.
std::string accepted_values(const KnobRow& row);
/// `DUMPER_` and the name in upper case.
std::string variable_name(std::string_view knob);
/// The knob's value as text that `assign` reads back; none is empty.
std::string value_text(const KnobRow& row, const DumperConfig& config);

/// Sets the field from `text`, which is not blank. Returns false when `text` is not of the knob's type or bounds.
bool assign(const KnobRow& row, std::string_view text, DumperConfig& config);
/// Sets the field to what a fresh DumperConfig has.
void assign_default(const KnobRow& row, DumperConfig& config);

/// What is wrong with the field's value, in words; empty when nothing is.
std::string fault_of(const KnobRow& row, const DumperConfig& config);

/// What keeps `text` from being one path component, in words; empty when nothing does.
std::string path_component_fault(std::string_view text);

/// A setting of the Python twin that has no meaning in C++: what to do instead; empty for any other name.
std::string_view twin_only_advice(std::string_view knob);

/// Of the knobs' names the one nearest to `name` by edits, or empty when none is near.
std::string_view nearest_knob(std::string_view name);

}  // namespace dbg::dumping
