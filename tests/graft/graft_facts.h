// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What holds of grafting, as each rank of both sides does and sees it: done by threads in one executable, by processes
// in another.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graft/sides.h"

namespace dbg::test {

/// The tensor of most facts.
inline at::Tensor matrix_of(double value) {
  return at::full({2, 3}, value, at::kFloat);
}

/// One fact, and between whom.
struct GraftFact {
  const char* name;
  int baseline;
  int target;
  void (*body)(SideRank&);
  const char* transform = "";
  bool is_of_both_wires = true;      ///< false: only dbg's own wire can do that
  const char* t2b_filter = nullptr;  ///< in place of the usual one
};

const std::vector<GraftFact>& graft_facts();

/// Fails the test and returns some fact when there is no such one.
const GraftFact& graft_fact(std::string_view name);

/// The configuration of a fact, but for the role.
GraftConfig config_of(const GraftFact& fact, bool plain_wire);

/// The transforms that facts name, for as long as it lives.
class FactTransforms {
 public:
  FactTransforms();

 private:
  std::vector<std::unique_ptr<ScopedTransform>> all_;
};

}  // namespace dbg::test
