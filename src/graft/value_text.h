// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Tags, extras and tensors as a line of the log shows them.
#pragma once

#include <ATen/core/Tensor.h>
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

/// What `describe` says of a tensor, of which this is the copy on the host (or it itself), as of where it was.
std::string info_text(const at::Tensor& on_host, c10::Device device);

}  // namespace dbg::graft
