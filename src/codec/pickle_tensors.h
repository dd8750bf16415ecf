// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What the reader makes of the function calls in a pickle: torch's rebuild functions and the few others allowed.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "codec/pickle_graph.h"
#include "codec/pickle_path.h"
#include "codec/pickle_reader.h"
#include "codec/tensor_rebuild.h"

namespace dbg::codec {

struct MadeByCall {
  std::optional<c10::IValue> value;
  /// Where there is no value: what stood there instead.
  std::string reason;
};

/// Answers the calls of one graph, each once.
/// Threads: one thread at a time.
class PickleTensors {
 public:
  PickleTensors(const PickleGraph& graph, PickleEnvironment& environment, const ReadLimits& limits, ReadBudget& budget)
      : graph_(graph), environment_(environment), limits_(limits), budget_(budget) {}

  /// What call `index` of the graph gives, which stands at `path`. The reference holds until the object ends.
  /// Throws: IoError for arguments that no writer would have written.
  const MadeByCall& call(std::size_t index, const PickleStep* path);

  /// Storage `index` of the graph, for elements of its own dtype.
  PickledStorage storage(std::size_t index);

 private:
  using Arguments = std::vector<PickleRef>;

  const MadeByCall& answered(std::size_t index);
  MadeByCall answer(const PickleCall& call);
  MadeByCall make_complex(const PickleCall& call) const;
  MadeByCall make_device(const PickleCall& call) const;
  MadeByCall make_tensor_metadata(const PickleCall& call) const;
  MadeByCall make_strided_tensor(const PickleCall& call);
  MadeByCall make_sparse_tensor(const PickleCall& call);
  MadeByCall make_typed(const PickleCall& call);
  MadeByCall tensor_of(PickleRef ref, const PickleCall& call);

  const PickledValue& stream(std::size_t index);
  /// The bytes of a `bytes` object; `decoded` holds them where they were written as text.
  std::string_view bytes_of(PickleRef ref, const PickleCall& call, std::string& decoded) const;

  const Arguments& arguments_of(const PickleCall& call, std::size_t least, std::size_t most) const;
  std::vector<std::int64_t> integers_of(PickleRef ref, const PickleCall& call) const;
  std::string_view text_of(PickleRef ref, const PickleCall& call) const;
  /// `storage` with all its elements conjugated, negated or both; the same object each time.
  c10::Storage resolved(const c10::Storage& storage, c10::ScalarType dtype, bool conjugate, bool negate,
                        const PickleCall& call);
  /// Pays for going through bytes once more.
  void spend_checked(std::uint64_t bytes, const PickleCall& call) const;
  bool is_flag_set(PickleRef metadata, std::string_view name) const;
  [[noreturn]] void fail(const PickleCall& call, std::string_view cause) const {
    graph_.bytes.fail(call.offset, at_place(graph_, path_, cause));
  }

  const PickleGraph& graph_;
  PickleEnvironment& environment_;
  const ReadLimits& limits_;
  ReadBudget& budget_;
  const PickleStep* path_ = nullptr;  // of the call that is being answered
  std::unordered_map<std::size_t, MadeByCall> made_;
  std::unordered_map<std::size_t, PickledValue> streams_;
  std::map<std::tuple<const void*, c10::ScalarType, bool, bool>, c10::Storage> resolved_;
};

}  // namespace dbg::codec
