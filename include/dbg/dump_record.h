// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The record: one dumped value with what is known about it, as a file.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "dbg/export.h"
#include "dbg/read_limits.h"

namespace dbg {

/// One dumped value.
///
/// Format, version 1. A record is a `.pt` file that Python's `torch.load(path)` opens with no other argument. It holds
/// a dict of exactly two keys:
///
///     {"value": <the value>, "meta": {"name": "x", "step": 0, "rank": 0, "dump_index": 1, ...}}
///
/// - Values are None, bool, int, float, complex, str, torch.device, tensor, and list, tuple and dict of those; nothing
///   carries a type tag. Lists and dicts of one type come out as plain ones, named tuples as tuples.
/// - Tensors of every dtype but the quantised ones. A tensor's strides are kept where its elements lie densely
///   (channels-last, transposed) and where they are 0 (expand: what is repeated is written once); views are cut down to
///   their elements, conjugate and negative views resolved, sparse ones coalesced (but for dtypes that torch can't add
///   up, such as fp8), device tensors copied to the host; requires_grad and gradients are not kept. A tensor that is
///   there twice, or two of the same elements in the same memory, are written once and share memory when read; views
///   that only overlap are written apart.
/// - Text is UTF-8; bytes that are not become what Python calls surrogateescape.
/// - Refused, with the reason: undefined, meta, fake, quantised, nested and mkldnn tensors; streams, objects, enums and
///   other kinds that have no plain form; dict keys that are tensors or devices; nesting beyond 100; more parts than
///   `read_record` takes by default (about eight million numbers, or half a million tensors).
/// - `meta` is a dict with text keys. A reader must ignore keys that it does not know.
///
/// The file is a zip of stored entries, see src/codec/archive.h. A later version that this one's readers can't open
/// will have another file extension.
///
/// File names are pairs `key=value` joined by `___`; step, rank, dump_index and name are among them:
///
///     step=0___rank=0___dump_index=1___name=x___recompute_status=disabled___layer_id=3.pt
struct DumpRecord {
  c10::IValue value;
  /// A dict with text keys.
  c10::IValue meta;
};

/// How a record is written.
struct RecordOptions {
  /// Whether to write the zip's checksums: zip tools and `read_record` check them, torch does not. Takes about a
  /// quarter of the time of a large record where the file system is memory, next to nothing on a disk.
  bool checksum = true;
};

/// Writes a record for its owner only. The file appears when it is whole; missing folders are created.
///
/// Units: the tensors' bytes go from their memory to the file; dense ones on the host are not copied.
/// Threads: safe to call from any thread. Waits for the device of a tensor on one.
/// Throws: IoError with the errno, the path and the bytes wanted (EEXIST when there is a file of that name), or
/// ConfigError with the place in the value and the reason when it can't be written.
/// Never: replaces a file, or leaves a part of one.
DBG_API void write_record(const std::string& path, const DumpRecord& record, const RecordOptions& options = {});

/// Reads a record of dbg's or of the Python twin's, of any protocol and dtype, without calling anything that it names.
///
/// Tensors come on the CPU, with the strides they had; those that shared memory in a Python record still do. What a
/// c10::IValue can't hold is left out, each with a line `place: reason` in `left_out` (without one, in a warning):
/// None and tuples as keys of dicts, bytes, sets, integers beyond 64 bits, text with a lone surrogate, containers inside
/// themselves, quantised and meta tensors, dtypes, named tuples and other objects.
/// Units: reads the file once; a tensor's bytes go straight to their memory.
/// Threads: safe to call from any thread.
/// Throws: IoError naming file, offset and cause when the file can't be read, is cut or damaged, is no record, or asks
/// for more than `limits`.
DBG_API DumpRecord read_record(const std::string& path, std::vector<std::string>* left_out = nullptr,
                               const ReadLimits& limits = {});

/// Lists the records of a folder, as `folder` + `/` + name, ordered by step, rank, dump_index as numbers, then by name.
/// Left out: files whose names are no record's (see the format above), temporary files, subfolders.
/// Throws: IoError when the folder can't be read.
DBG_API std::vector<std::string> list_records(const std::string& folder);

}  // namespace dbg
