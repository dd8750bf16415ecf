// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads what dbg and Python's torch.save write: the zip archive, the older stream, and bare pickles.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string>
#include <vector>

#include "codec/read_limits.h"

namespace dbg::codec {

/// Reads the value in a torch.save file of either format, whoever wrote it (dbg, torch since 0.4; protocols 2 to 5).
///
/// What becomes a c10::IValue, and what is refused, stands in codec/pickle_reader.h. Each storage is read once,
/// straight from the file into its memory; big-endian archives are turned. `refusals`, where given, gets one entry for
/// each part that was left out. Throws: IoError naming file, byte offset and cause when the file can't be opened, is
/// cut, was written by no torch, or asks for more than `limits`. Never: calls anything that the file names, or
/// allocates by a length that the file does not have. Threads: safe to call from any thread.
c10::IValue read_archive_file(const std::string& path, const ReadLimits& limits = {},
                              std::vector<Refusal>* refusals = nullptr);

/// The same for a file's bytes in memory; they are not needed afterwards.
c10::IValue read_archive_bytes(const void* data, std::size_t size, const ReadLimits& limits = {},
                               std::vector<Refusal>* refusals = nullptr);

/// Reads exactly one pickle whose tensors carry their bytes with them (`torch.storage._load_from_bytes`), such as
/// `pickle.dumps` of tensors in plain containers.
c10::IValue read_pickle_bytes(const void* data, std::size_t size, const ReadLimits& limits = {},
                              std::vector<Refusal>* refusals = nullptr);

}  // namespace dbg::codec
