// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Storing a record by folder and name, as the Dumper does: with the outcome "taken", and any file system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/archive.h"
#include "codec/read_limits.h"
#include "dbg/dump_record.h"
#include "dump/file_system.h"

namespace dbg::dumping {

/// What became of a record.
struct StoreResult {
  /// False when there is a file of that name: nothing was changed, and the caller takes the next free name.
  bool is_stored = false;
  std::uint64_t size_bytes = 0;
};

/// Writes `archive`, which is a record's, to `folder`/`name`.
/// Throws: as write_record, but for EEXIST, which is no error here.
StoreResult store_record(const std::string& folder, std::string_view name, const codec::Archive& archive,
                         FileSystem& files = FileSystem::real());
StoreResult store_record(const std::string& folder, std::string_view name, const DumpRecord& record,
                         const RecordOptions& options = {}, FileSystem& files = FileSystem::real());

/// Reads a record as `read_record` does, but for what `limits.windowed_above_bytes` lets wait. Throws: as read_record.
DumpRecord read_record_within(const std::string& path, const codec::ReadLimits& limits,
                              std::vector<std::string>* left_out = nullptr);

}  // namespace dbg::dumping
