// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What ranks say of their tensors' axes, as it stands in extras and in a record's meta.
#pragma once

#include <ATen/core/ivalue.h>

#include "dbg/grafter.h"

namespace dbg::graft {

/// The place in a dict with text keys: `dims`, and for each axis `<axis>_rank` and `<axis>_size`, in the dict itself or
/// in a dict under `<name>_parallel_info` (a record's meta has those). What is there first counts; what makes no sense
/// is left out, and so is what comes after 64 axes or 16 such dicts. Anything but a dict says nothing.
GraftPlace place_in(const c10::IValue& dict);

/// `said`, and what it leaves open from `otherwise`.
GraftPlace merged(GraftPlace said, const GraftPlace& otherwise);

/// The place as such a dict.
c10::IValue to_dict(const GraftPlace& place);

}  // namespace dbg::graft
