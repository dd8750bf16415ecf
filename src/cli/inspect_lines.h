// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A record in a line, as text and as JSON, and the corners of its tensor.
#pragma once

#include <string>
#include <vector>

#include "compare/side.h"
#include "dbg/tensor_info.h"

namespace dbg::cli {

/// One tensor (or other value) of a record.
struct InspectedValue {
  std::string part;
  bool is_tensor = false;
  std::string text;  ///< of what is no tensor
  TensorInfo info;   ///< of a number that is no tensor: whether it is NaN or infinite, no more
  std::vector<std::vector<std::string>> corners;  ///< rows of values, where asked for

  bool is_bad() const noexcept { return info.nan_count + info.inf_count > 0; }
};

struct InspectedRecord {
  compare::RecordFile file;
  std::vector<InspectedValue> values;
  std::string left_out;  ///< what could not be held of it
  std::string cause;     ///< why it could not be read; empty when it could
};

/// Reads a record and looks through its tensors, a large one in pieces.
/// Never throws for what the file holds: that becomes the `cause`.
InspectedRecord inspect(compare::RecordFile file, bool with_corners);

/// The record's lines, each with its newline.
std::string inspect_text(const InspectedRecord& record);

/// One JSON object a value, each on a line:
/// `{"path", "name", "part", "step", "rank", "tags", "dtype", "shape", "min", "max", ...}`, or `{"path", "error"}`.
std::string inspect_json(const InspectedRecord& record);

}  // namespace dbg::cli
