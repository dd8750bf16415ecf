// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Stores drafts under their names.
#include "dump/file_sink.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "codec/archive.h"
#include "dbg/error.h"
#include "dump/atomic_file.h"
#include "dump/dump_record.h"

namespace dbg {

FileSink::FileSink(const std::string& folder, bool checksum) : folder_(folder), checksum_(checksum) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  if (error) {
    throw IoError(formatted("records can't go to '{}', for nobody knows where that is: the working folder {}. Set "
                            "DUMPER_DIR to an absolute path",
                            folder,
                            error == std::errc::no_such_file_or_directory
                                ? "was removed"
                                : "can't be told (" + base::errno_text(error.value()) + ")"),
                  error.value());
  }
  folder_ = absolute.string();  // the program may change its working directory later
  dumping::remove_stale_temporaries(folder_);
}

SinkOutcome FileSink::write(const RecordDraft& draft) {
  const std::string name = draft.file_name();
  // Records of an earlier phase may hold thousands of names in a row: once one was met, look before writing.
  struct stat status {};
  if (has_met_taken_names_.load(std::memory_order_relaxed) &&
      ::lstat(formatted("{}/{}", folder_, name).c_str(), &status) == 0) {
    return {true, 0};
  }
  const codec::Archive archive(
      [&draft](codec::PickleWriter& out, const codec::TensorEmitter& emit) { draft.write_to(out, emit); },
      {.checksum = checksum_});
  const dumping::StoreResult result = dumping::store_record(folder_, name, archive);
  if (!result.is_stored) has_met_taken_names_.store(true, std::memory_order_relaxed);
  return {!result.is_stored, result.size_bytes};
}

}  // namespace dbg
