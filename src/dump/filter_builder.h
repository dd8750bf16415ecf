// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Puts a program together, node by node, and computes at once what depends on no tag.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "dump/filter_program.h"

namespace dbg::filter {

/// Threads: one thread at a time.
class Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}

  // `at` is the byte of the source that a message points to.

  NodeIndex make_constant(std::size_t at, const Value& value);
  /// Copies `text`.
  NodeIndex make_text(std::size_t at, std::string_view text);
  /// `name` lies in the program's source.
  NodeIndex make_name(std::size_t at, std::string_view name);
  NodeIndex make(Operation operation, std::size_t at, const std::vector<NodeIndex>& operands);
  NodeIndex make_arithmetic(Arithmetic op, std::size_t at, NodeIndex left, NodeIndex right);
  NodeIndex make_comparison(std::size_t at, const std::vector<NodeIndex>& operands,
                            const std::vector<Compare>& compares);
  /// Throws: PatternError.
  NodeIndex make_search(Operation operation, std::size_t at, std::string_view pattern, NodeIndex text);

  /// None, True or False, known by now.
  bool is_singleton(NodeIndex node) const;
  /// A text, known by now.
  bool is_text(NodeIndex node) const { return text_of(node).has_value(); }
  std::optional<std::string_view> text_of(NodeIndex node) const;
  /// What a search gives.
  bool is_match(NodeIndex node) const;

 private:
  NodeIndex add(Node node, const std::vector<NodeIndex>& operands);

  Program& program_;
};

}  // namespace dbg::filter
