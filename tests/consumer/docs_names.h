// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The names that the C++ snippets of README.md and docs/ use without declaring them, as their text introduces them.
// Includes nothing of dbg: a snippet that brings includes of its own must do with those.
#pragma once

#include <ATen/core/Tensor.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace dbg {
class Dumper;
}
namespace c10d {
class Store;
}

namespace docs {

/// What a reader's own program has: a value of the model, and in which layer.
extern const at::Tensor x;
extern at::Tensor hidden;
extern const int i;

/// Any model will do that has `named_parameters()`.
struct Model {
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
};
extern Model model;

/// A Dumper: `dbg::Dumper::global()` or one of the reader's own.
extern dbg::Dumper& dumper;

/// For syncing weights: a store that all workers see, and which worker this is.
extern const c10::intrusive_ptr<c10d::Store> store;
extern const int index;
extern const int num_actors;
extern const int num_rollouts;

}  // namespace docs
