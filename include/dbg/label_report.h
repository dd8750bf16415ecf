// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What each tool that watches communication will show for a group: read back where it can be.
#pragma once

#include <string>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// One channel by which a label reaches tools.
struct LabelChannel {
  std::string half;     ///< `device` or `cpu`
  std::string channel;  ///< `group_desc of the process group`, `Flight Recorder pg_config` ...
  std::string shows;    ///< what was read there; empty: nothing
  bool carries_label = false;
  std::string note;  ///< why it does not, or what can't be read back; may be empty
};

/// All channels of one group.
struct LabelReport {
  std::vector<LabelChannel> channels;

  /// One line a channel: `cpu: group_desc of the backend = tp:cpu`.
  DBG_API std::string text() const;
};

}  // namespace dbg
