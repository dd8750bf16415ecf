// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Says in words where in a pickled value something stands, and what it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "codec/pickle_graph.h"

namespace dbg::codec {

/// One step from a container into an entry; a chain of them, on the stack of whoever walks, is a path.
struct PickleStep {
  /// nullptr at the root.
  const PickleStep* outer = nullptr;
  /// The key in a dict; absent in a list or tuple.
  PickleRef key;
  std::size_t index = 0;
};

/// `value['a'][3]`: a first key that is a word stands bare. Empty for the root.
std::string path_text(const PickleGraph& graph, const PickleStep* path);

/// `cause` with the place before it, where it is not the root; a long path is cut in the middle.
std::string at_place(const PickleGraph& graph, const PickleStep* path, std::string_view cause);

/// What kind of thing `ref` is: "None", "a tuple", "bytes".
std::string describe_kind(const PickleGraph& graph, PickleRef ref);

/// The same for things that no value can be made of, with their names.
std::string describe_refused(const PickleGraph& graph, PickleRef ref);

}  // namespace dbg::codec
