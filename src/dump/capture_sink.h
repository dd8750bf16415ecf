// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The memory sink behind Dumper::capture_output().
#pragma once

#include <memory>
#include <mutex>

#include "dbg/dumper.h"
#include "dump/fork_generation.h"
#include "dump/participant_state.h"
#include "dump/sink.h"

namespace dbg {

/// Keeps copies of records, by name. Threads: safe to call from any thread.
class CaptureSink final : public RecordSink {
 public:
  SinkOutcome write(const RecordDraft& draft) override;
  CaptureScope::Records records() const;

 private:
  mutable std::mutex mutex_;
  CaptureScope::Records records_;  // under mutex_
};

/// What a scope holds on to: it may outlive its Dumper.
struct CaptureScope::State {
  std::shared_ptr<ParticipantState> participant;
  std::shared_ptr<CaptureSink> sink;
  unsigned generation = fork_generation();  ///< in a forked child a thread of the parent may hold the locks
};

}  // namespace dbg
