// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What torch's Flight Recorder of the gloo backends knows of a group.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dbg::distributed {

/// A group as `pg_config` of a Flight Recorder dump shows it.
struct RecordedGroup {
  std::string name;
  std::string description;
  std::string ranks;
};

/// The dump that `torch.distributed`'s tools read, as JSON; empty where this torch has none. `with_entries`:
/// collectives too.
std::string flight_recorder_json(bool with_entries);

/// nullopt when there is none of that name, or this torch has no recorder for gloo.
std::optional<RecordedGroup> recorded_group_config(const std::string& name);

/// Whether this torch lets the recorder of gloo be reached: 2.15 does, 2.11 keeps it to itself.
bool can_describe_recorded_groups() noexcept;

/// Gives the group of that name its label for a description, in place of none or of another; where it can be reached.
/// `ranks` are written down when its maker has not said any. Never throws.
void describe_recorded_group(const std::string& name, const std::string& label, const std::vector<int>& ranks) noexcept;

}  // namespace dbg::distributed
