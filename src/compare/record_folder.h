// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A folder of records as a list of what their names tell.
#pragma once

#include <string>
#include <vector>

#include "compare/side.h"
#include "dump/filter.h"

namespace dbg::compare {

struct RecordFolder {
  std::string path;  ///< where the records are
  std::vector<RecordFile> records;
  std::vector<RecordFile> length_records;  ///< that tell the lengths of packed sequences, let through or not
  std::string note;                        ///< set when another folder was taken than the one that was named
};

/// Lists the records of `folder`, or of the only folder in it that has some, that `where` lets through. `what` is for
/// messages: `baseline`.
/// Throws: IoError when it can't be read; ConfigError when there are no records, saying what is there instead.
RecordFolder open_folder(const std::string& folder, const std::string& what, const Filter& where);

}  // namespace dbg::compare
