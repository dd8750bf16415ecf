// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// One file, two programs: a scope with a name compiles, one without, which would bind nothing, must not.
#include <memory>

#include "dbg/participant.h"

void call(const std::shared_ptr<const dbg::Participant>& participant);

void call(const std::shared_ptr<const dbg::Participant>& participant) {
#if defined(DBG_CASE_WITHOUT_A_NAME)
  dbg::ParticipantScope{participant};
#else
  const dbg::ParticipantScope scope{participant};
#endif
}
