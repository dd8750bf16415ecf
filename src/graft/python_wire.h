// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The wire of the Python twin (SGLang's dumper, 0.5.14), for groups in which some rank is Python.
//
// A call is `torch.distributed.all_gather_object` over both sides: an allgather of one int64 a rank, its payload's
// length in bytes; then an allgather of uint8, each payload padded with zeros to the longest. A payload is a pickle:
//   - of a receiver: None, which is `80 04 4e 2e` from Python and from dbg
//   - of a sender: the tuple (tensor, extras or None)
//   - of a sender that has no tensor: (None, None). None alone would end a Python receiver's run, which takes the tuple
//     apart outside of its own guard.
// dbg writes protocol 4, with `torch.storage._load_from_bytes(<.pt file>)` for a tensor, and reads protocols 2 to 5 by
// codec's allow-list: torch's rebuild functions around that, plain containers, and nothing else.
// Each rank takes payloads up to its limit, and all of them, padded, up to four times that; a length above either ends
// the group. A dbg sender whose own is above what some dbg rank takes gives nothing instead. A Python sender can't
// know: its length ends the group, and then its own gather, which the twin does not guard. Nothing on this wire names
// the tensor: calls are paired by their order. A rank that leaves out a call at which the others are shifts all that
// follow. The twin does so at a value that is no tensor; both do where both filters match.
#pragma once

#include <cstdint>
#include <string>

#include "graft/exchange.h"

namespace dbg::graft {

/// The payload of a sender; `why` is set, and the payload that of a sender without a tensor, when its values can't be
/// had or written, or take more than `max_bytes`.
std::string encode_payload(const Contribution& contribution, std::int64_t max_bytes, std::string* why);

/// Takes part in one call.
/// Throws: CommError, after which the group is broken: a peer that is silent or gone, a length that is not believed.
Exchanged exchange_with_python(const Wire& wire, const ExchangeRequest& request);

}  // namespace dbg::graft
