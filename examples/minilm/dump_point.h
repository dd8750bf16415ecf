// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Stands where dbg::dump and dbg::step will: the model's dump points are in place before the Dumper is.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "dbg/tags.h"

namespace minilm {

inline void dump_point(std::string_view /*name*/, const at::Tensor& /*value*/, dbg::TagList /*tags*/ = {}) {}
inline void end_step() {}

}  // namespace minilm
