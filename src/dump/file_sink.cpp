// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Stores drafts under their names.
#include "dump/file_sink.h"

#include <utility>

#include "dump/atomic_file.h"
#include "dump/dump_record.h"

namespace dbg {

FileSink::FileSink(std::string folder, bool checksum) : folder_(std::move(folder)), checksum_(checksum) {
  dumping::remove_stale_temporaries(folder_);
}

SinkOutcome FileSink::write(const RecordDraft& draft) {
  RecordOptions options;
  options.checksum = checksum_;
  const dumping::StoreResult result = dumping::store_record(folder_, draft.file_name(), draft.record(), options);
  return {!result.is_stored, result.size_bytes};
}

}  // namespace dbg
