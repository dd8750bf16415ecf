// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tags and extras as a line of the log shows them.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "dbg/tags.h"

namespace dbg::graft {

/// As Python's `repr` has it, tensors as `Tensor(float32[2, 3])`; cut where it gets long. Never throws but for memory.
std::string value_text(const c10::IValue& value);
std::string value_text(const std::vector<c10::IValue>& values);

/// `{name=x, layer_id=3}`.
std::string value_text(const Tags& tags);

}  // namespace dbg::graft
