// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A compiled expression and its evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fence.h"
#include "dump/filter.h"
#include "dump/filter_pattern.h"
#include "dump/filter_value.h"

namespace dbg::filter {

using NodeIndex = std::uint32_t;

enum class Operation : std::uint8_t {
  constant,
  name,
  tuple,
  list,
  set,
  all_of,  // `and`, over two or more
  any_of,  // `or`
  inverse,
  conditional,  // condition, then, otherwise
  comparison,   // operands; one Compare less than operands
  arithmetic,
  negation,
  plus,
  item,
  slice,   // sequence, start, stop, step
  search,  // text
  match,
  starts_with,  // text, affix
  ends_with,
  contains,  // text, part
  length,
};

/// One operation; its operands are other nodes.
struct Node {
  Operation operation = Operation::constant;
  Arithmetic arithmetic = Arithmetic::add;
  std::uint16_t depth = 1;          ///< of the tree below, this node included
  std::uint32_t at = 0;             ///< byte of the source
  std::uint32_t first_operand = 0;  ///< in Program::operands
  std::uint32_t operand_count = 0;
  std::uint32_t first_compare = 0;   ///< in Program::compares
  const Pattern* pattern = nullptr;  ///< search, match
  std::string_view name;             ///< in Program::source
  Value constant;
};

/// Immutable once parsed, but for the count.
struct Program {
  std::string source;
  std::vector<Node> nodes;
  std::vector<NodeIndex> operands;
  std::vector<Compare> compares;
  std::vector<std::unique_ptr<Pattern>> patterns;
  Scratch constants;
  NodeIndex root = 0;
  mutable base::RepeatLimiter mismatches;
};

/// Is told of operations that have no answer for their operands.
class MismatchObserver {
 public:
  /// `tried` names the operation (`'<'`); `a` and `b` are the same object where there is one operand.
  virtual void on_mismatch(const Node& node, std::string_view tried, const Value& a, const Value& b) = 0;

 protected:
  ~MismatchObserver() = default;
};

/// The value of one node of `program` under `tags`. Texts and items of the result lie in the tags, the program or
/// `scratch`.
/// Throws: what RE2 or the observer does (std::bad_alloc).
Value evaluate(const Program& program, NodeIndex node, const TagLookup& tags, Scratch& scratch,
               MismatchObserver& observer);

}  // namespace dbg::filter
