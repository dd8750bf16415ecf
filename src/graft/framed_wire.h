// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The wire between ranks that are all dbg: headers gathered by all (graft/frame.h), then bytes from senders to
// receivers only.
//
// A call: an allgather of one header a rank. Where all are at the same call, each sender that has a value sends each
// receiver that has a tensor to put one into, under tags of their own, its info (if there is some) and the tensor's
// elements in row-major order. Where they are not: all skip the call, or, when the steps differ, those of the lower
// step do, and the others gather again with the header they have until they are met, or the timeout strikes. So both
// sides are in step again at the next step at the latest.
#pragma once

#include "graft/exchange.h"

namespace dbg::graft {

/// Takes part in one call.
/// Throws: CommError, after which the group is broken.
Exchanged exchange_framed(const Wire& wire, const ExchangeRequest& request);

}  // namespace dbg::graft
