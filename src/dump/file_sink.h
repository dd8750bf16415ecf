// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Records as files in one folder, each written whole before the call returns.
#pragma once

#include <atomic>
#include <string>

#include "dump/sink.h"

namespace dbg {

/// Writes into `folder`, which it makes (0700) when the first record comes, and again when somebody removed it. A
/// relative one is of the working directory that the process had when the sink was made.
class FileSink final : public RecordSink {
 public:
  /// Throws: IoError for a relative `folder` when the working directory was removed.
  FileSink(const std::string& folder, bool checksum);
  SinkOutcome write(const RecordDraft& draft) override;
  std::string folder() const override { return folder_; }

 private:
  std::string folder_;
  bool checksum_;
  std::atomic<bool> has_met_taken_names_{false};
};

}  // namespace dbg
