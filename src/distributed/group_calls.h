// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How a GroupCoordinator's methods reach the operations on its halves.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "distributed/collective_call.h"
#include "distributed/group_impl.h"

namespace dbg::distributed {

/// Throws: LogicError when the group was closed.
GroupHalf& open_half(const GroupCoordinator::Impl& impl, const std::shared_ptr<OwnedHalf>& half);

/// The half that carries this tensor.
GroupHalf& half_for(const GroupCoordinator::Impl& impl, const at::Tensor& tensor);

CallOptions call_options(const OperationOptions& options);

}  // namespace dbg::distributed
