// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Nodes of a program, and the folding of constants.
#include "dump/filter_builder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/formatted.h"
#include "dump/filter_error.h"

namespace dbg::filter {
namespace {

constexpr std::uint16_t kMostOperations = 400;  // nodes below each other: `a + a + a ...` nests without brackets

class NoTags final : public TagLookup {
 public:
  TagView find(std::string_view) const noexcept override { return {}; }
};

class MismatchFlag final : public MismatchObserver {
 public:
  void on_mismatch(const Node&, std::string_view, const Value&, const Value&) override { raised = true; }
  bool raised = false;
};

Node node_of(Operation operation, std::size_t at) {
  Node node;
  node.operation = operation;
  node.at = static_cast<std::uint32_t>(at);
  return node;
}

}  // namespace

NodeIndex Builder::add(Node node, const std::vector<NodeIndex>& operands) {
  node.first_operand = static_cast<std::uint32_t>(program_.operands.size());
  node.operand_count = static_cast<std::uint32_t>(operands.size());
  bool is_constant = node.operation != Operation::name;
  for (const NodeIndex operand : operands) {
    const Node& below = program_.nodes[operand];
    node.depth = std::max<std::uint16_t>(node.depth, below.depth + 1);
    is_constant = is_constant && below.operation == Operation::constant;
  }
  if (node.depth > kMostOperations) {
    fail_at(program_.source, node.at, formatted("more than {} operations inside each other", kMostOperations));
  }
  program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
  const auto index = static_cast<NodeIndex>(program_.nodes.size());
  program_.nodes.push_back(node);
  if (!is_constant || node.operation == Operation::constant) return index;

  // What has no answer stays as it is, to be counted and told when a dump meets it.
  MismatchFlag mismatch;
  const Value value = evaluate(program_, index, NoTags(), program_.constants, mismatch);
  if (mismatch.raised || value.is(Kind::undefined)) return index;
  Node folded = node_of(Operation::constant, node.at);
  folded.constant = value;
  program_.nodes[index] = folded;
  return index;
}

NodeIndex Builder::make_constant(std::size_t at, const Value& value) {
  Node node = node_of(Operation::constant, at);
  node.constant = value;
  return add(node, {});
}

NodeIndex Builder::make_text(std::size_t at, std::string_view text) {
  char* const place = program_.constants.bytes(text.size());
  if (place == nullptr) throw std::bad_alloc();
  std::copy(text.begin(), text.end(), place);
  return make_constant(at, Value::of(std::string_view(place, text.size())));
}

NodeIndex Builder::make_name(std::size_t at, std::string_view name) {
  Node node = node_of(Operation::name, at);
  node.name = name;
  return add(node, {});
}

NodeIndex Builder::make(Operation operation, std::size_t at, const std::vector<NodeIndex>& operands) {
  return add(node_of(operation, at), operands);
}

NodeIndex Builder::make_arithmetic(Arithmetic op, std::size_t at, NodeIndex left, NodeIndex right) {
  Node node = node_of(Operation::arithmetic, at);
  node.arithmetic = op;
  return add(node, {left, right});
}

NodeIndex Builder::make_comparison(std::size_t at, const std::vector<NodeIndex>& operands,
                                   const std::vector<Compare>& compares) {
  Node node = node_of(Operation::comparison, at);
  node.first_compare = static_cast<std::uint32_t>(program_.compares.size());
  program_.compares.insert(program_.compares.end(), compares.begin(), compares.end());
  return add(node, operands);
}

NodeIndex Builder::make_search(Operation operation, std::size_t at, std::string_view pattern, NodeIndex text) {
  program_.patterns.push_back(std::make_unique<Pattern>(pattern));
  Node node = node_of(operation, at);
  node.pattern = program_.patterns.back().get();
  return add(node, {text});
}

bool Builder::is_singleton(NodeIndex node) const {
  const Node& found = program_.nodes[node];
  return found.operation == Operation::constant && (found.constant.is(Kind::none) || found.constant.is(Kind::boolean));
}

std::optional<std::string_view> Builder::text_of(NodeIndex node) const {
  const Node& found = program_.nodes[node];
  if (found.operation != Operation::constant || !found.constant.is(Kind::text)) return std::nullopt;
  return found.constant.view();
}

bool Builder::is_match(NodeIndex node) const {
  const Node& found = program_.nodes[node];
  return found.operation == Operation::search || found.operation == Operation::match ||
         (found.operation == Operation::constant && found.constant.is(Kind::matched));
}

}  // namespace dbg::filter
