// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where records go: a draft names and holds one record, a sink keeps it. The file sink is synchronous; an asynchronous,
// bounded one fits behind the same interface.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "codec/pickle_writer.h"
#include "dbg/dump_record.h"
#include "dbg/parallel_state.h"
#include "dump/record_name.h"

namespace dbg {

/// One entry of a record's meta beyond its name's pairs: a plain value, or the axes of a parallel layout as a dict of
/// `<axis>_rank` and `<axis>_size`. Borrows what it says.
struct MetaEntry {
  MetaEntry(std::string_view name, TagView plain) : key(name), tag(plain) {}
  MetaEntry(std::string_view name, const ParallelState& state) : key(name), axes(&state) {}

  std::string_view key;
  TagView tag;
  const ParallelState* axes = nullptr;
};

/// One record on its way to a sink. Borrows keys and text for the call; the value is shared, not copied.
struct RecordDraft {
  /// step, rank, dump_index, name, then the rest in the file name's order.
  std::vector<RecordNamePair> pairs;
  /// What the meta holds beyond the pairs, in order; no key is there twice.
  std::vector<MetaEntry> extra_meta;
  c10::IValue value;

  static constexpr std::size_t kDumpIndexAt = 2;
  static constexpr std::size_t kNameAt = 3;

  std::string file_name() const { return format_record_name(pairs); }
  /// The record with its meta built; shares the value's tensors.
  DumpRecord record() const;
  /// Writes the same record as `record()` makes, with no c10::Dict between: those end the process where they get no
  /// memory, for their move constructor allocates and is noexcept.
  /// Throws: as codec::write_value; std::bad_alloc.
  void write_to(codec::PickleWriter& out, const codec::TensorEmitter& emit_tensor) const;
};

/// What a sink did with a draft.
struct SinkOutcome {
  bool taken = false;       ///< nothing was written: another record has this name; take the next dump_index
  std::uint64_t bytes = 0;  ///< size of what was written
};

/// Keeps records. Threads: safe to call from any thread.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  /// Keeps a record, whole or not at all. Throws: IoError with the system's cause; nothing half-written stays.
  virtual SinkOutcome write(const RecordDraft& draft) = 0;
  /// Where its files lie; empty when it writes none.
  virtual std::string folder() const { return {}; }
};

/// A tag as what Python reads back.
c10::IValue to_ivalue(TagView value);

/// Copies a value with everything in it: tensors are detached and cloned, containers rebuilt.
c10::IValue deep_copy(const c10::IValue& value);

}  // namespace dbg
