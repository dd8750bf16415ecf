// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Copies records into memory.
#include "dump/capture_sink.h"

#include <utility>

namespace dbg {

SinkOutcome CaptureSink::write(const RecordDraft& draft) {
  DumpRecord record = draft.record();
  record.value = deep_copy(record.value);
  std::string name(draft.pairs[RecordDraft::kNameAt].second.text());
  const std::lock_guard lock(mutex_);
  records_[std::move(name)].push_back(std::move(record));
  return {};
}

CaptureScope::Records CaptureSink::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

CaptureScope::CaptureScope(std::shared_ptr<State> state) : state_(std::move(state)) {}

CaptureScope::CaptureScope(CaptureScope&& other) noexcept = default;

CaptureScope::~CaptureScope() {
  if (state_ && state_->generation == fork_generation()) state_->participant->remove_capture(state_->sink.get());
}

CaptureScope::Records CaptureScope::records() const {
  return state_ && state_->generation == fork_generation() ? state_->sink->records() : Records();
}

}  // namespace dbg
