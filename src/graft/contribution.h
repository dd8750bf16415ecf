// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What one sender gives at one call, whatever the wire.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

#include "dbg/grafter.h"

namespace dbg::graft {

enum class ContributionState : std::uint8_t {
  value,
  nothing,  ///< there is no tensor, or none that can be sent
  refused,  ///< it came, and can't be read or is damaged
};

/// Why nothing is given, or put into, at a dump during a capture: said after "the value here is".
inline constexpr const char* kCapturing = "not looked at: this thread's CUDA stream is being captured into a graph";

/// One sender's part: with a value, its tensor on the host; else why there is none.
struct Contribution {
  ContributionState state = ContributionState::nothing;
  at::Tensor tensor = {};
  c10::IValue extras = {};  ///< None where omitted
  GraftPlace place = {};
  std::string reason = {};
  std::string lost = {};  ///< what of the extras could not be taken; empty: nothing
};

/// What this rank gives of a dumped value; a device's tensor is brought to the host, once for all that needs it.
/// Never throws but for want of memory.
Contribution contribution_of(const c10::IValue& value, const c10::IValue* extras, GraftPlace place);

/// The values of a contribution's tensor in row-major order, on the host. The tensor itself where it is so already.
/// Throws: what torch throws when it can't copy.
at::Tensor dense_on_host(const at::Tensor& tensor);

}  // namespace dbg::graft
