// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Walks a compiled expression.
#include "dump/filter_program.h"

namespace dbg::filter {
namespace {

std::string_view name_of(Compare compare) {
  switch (compare) {
    case Compare::equal:
      return "'=='";
    case Compare::not_equal:
      return "'!='";
    case Compare::less:
      return "'<'";
    case Compare::less_equal:
      return "'<='";
    case Compare::greater:
      return "'>'";
    case Compare::greater_equal:
      return "'>='";
    case Compare::in:
      return "'in'";
    case Compare::not_in:
      return "'not in'";
    case Compare::is:
      return "'is'";
    case Compare::is_not:
      return "'is not'";
  }
  return "";
}

std::string_view name_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::add:
      return "'+'";
    case Arithmetic::subtract:
      return "'-'";
    case Arithmetic::multiply:
      return "'*'";
    case Arithmetic::floor_divide:
      return "'//'";
    case Arithmetic::modulo:
      return "'%'";
  }
  return "";
}

bool is_undefined(const Value& value) {
  return value.is(Kind::undefined);
}

class Evaluation {
 public:
  Evaluation(const Program& program, const TagLookup& tags, Scratch& scratch, MismatchObserver& observer)
      : program_(program), tags_(tags), scratch_(scratch), observer_(observer) {}

  Value run(NodeIndex index) {
    const Node& node = program_.nodes[index];
    switch (node.operation) {
      case Operation::constant:
        return node.constant;
      case Operation::name:
        return Value::of(tags_.find(node.name));
      case Operation::tuple:
      case Operation::list:
      case Operation::set:
        return collection(node);
      case Operation::all_of:
      case Operation::any_of:
        return junction(node);
      case Operation::inverse:
        return Value::of(!truth(operand(node, 0)));
      case Operation::conditional:
        return truth(operand(node, 0)) ? operand(node, 1) : operand(node, 2);
      case Operation::comparison:
        return comparison(node);
      case Operation::arithmetic: {
        const Value left = operand(node, 0);
        const Value right = operand(node, 1);
        return answered(node, name_of(node.arithmetic), left, right,
                        dbg::filter::arithmetic(node.arithmetic, left, right, scratch_));
      }
      case Operation::negation: {
        const Value value = operand(node, 0);
        return answered(node, "'-'", value, value, negated(value));
      }
      case Operation::plus: {
        const Value value = operand(node, 0);
        return answered(node, "'+'", value, value, dbg::filter::plus(value));
      }
      case Operation::item: {
        const Value sequence = operand(node, 0);
        const Value index_value = operand(node, 1);
        return answered(node, "an index", sequence, index_value, item_at(sequence, index_value));
      }
      case Operation::slice:
        return sliced(node);
      case Operation::search:
      case Operation::match:
        return matched(node);
      case Operation::starts_with: {
        const Value text = operand(node, 0);
        const Value affix = operand(node, 1);
        return answered(node, "startswith()", text, affix, dbg::filter::starts_with(text, affix));
      }
      case Operation::ends_with: {
        const Value text = operand(node, 0);
        const Value affix = operand(node, 1);
        return answered(node, "endswith()", text, affix, dbg::filter::ends_with(text, affix));
      }
      case Operation::contains: {
        const Value text = operand(node, 0);
        const Value part = operand(node, 1);
        const Value result = text.is(Kind::text) ? compare(Compare::in, part, text) : Value::of_kind(Kind::undefined);
        return answered(node, "contains()", text, part, result);
      }
      case Operation::length: {
        const Value value = operand(node, 0);
        return answered(node, "len()", value, value, dbg::filter::length(value));
      }
    }
    return Value::of_kind(Kind::undefined);
  }

 private:
  Value operand(const Node& node, std::uint32_t number) { return run(program_.operands[node.first_operand + number]); }

  // Reports `result` when it is undefined and no operand was: an operand's own mismatch is reported already.
  Value answered(const Node& node, std::string_view tried, const Value& a, const Value& b, const Value& result) {
    if (is_undefined(result) && !is_undefined(a) && !is_undefined(b)) observer_.on_mismatch(node, tried, a, b);
    return result;
  }

  Value collection(const Node& node) {
    Value* const items = scratch_.values(node.operand_count);
    if (items == nullptr) {
      const Value none{};
      return answered(node, "a collection without memory", none, none, Value::of_kind(Kind::undefined));
    }
    bool is_whole = true;
    for (std::uint32_t i = 0; i < node.operand_count; ++i) {
      items[i] = operand(node, i);
      is_whole = is_whole && !is_undefined(items[i]);
    }
    if (!is_whole) return Value::of_kind(Kind::undefined);
    if (node.operation == Operation::tuple) return Value::of(Kind::tuple, items, node.operand_count);
    if (node.operation == Operation::list) return Value::of(Kind::list, items, node.operand_count);
    const Value set = make_set(items, node.operand_count);
    return answered(node, "a set", items[0], items[node.operand_count - 1], set);
  }

  Value junction(const Node& node) {
    const bool stop_at = node.operation == Operation::any_of;
    Value value = operand(node, 0);
    for (std::uint32_t i = 1; i < node.operand_count && truth(value) != stop_at; ++i) value = operand(node, i);
    return value;
  }

  Value comparison(const Node& node) {
    Value left = operand(node, 0);
    for (std::uint32_t i = 1; i < node.operand_count; ++i) {
      const Compare op = program_.compares[node.first_compare + i - 1];
      const Value right = operand(node, i);
      if (!truth(answered(node, name_of(op), left, right, compare(op, left, right)))) return Value::of(false);
      left = right;
    }
    return Value::of(true);
  }

  Value sliced(const Node& node) {
    const Value sequence = operand(node, 0);
    const Value start = operand(node, 1);
    const Value stop = operand(node, 2);
    const Value step = operand(node, 3);
    const Value result = dbg::filter::slice(sequence, start, stop, step, scratch_);
    if (is_undefined(stop) || is_undefined(step)) return result;
    return answered(node, "a slice", sequence, start, result);
  }

  Value matched(const Node& node) {
    const bool is_search = node.operation == Operation::search;
    const Value text = operand(node, 0);
    if (!text.is(Kind::text)) {
      return answered(node, is_search ? "search()" : "match()", text, text, Value::of_kind(Kind::undefined));
    }
    const bool found = is_search ? node.pattern->search(text.view()) : node.pattern->match(text.view());
    return Value::of_kind(found ? Kind::matched : Kind::none);
  }

  const Program& program_;
  const TagLookup& tags_;
  Scratch& scratch_;
  MismatchObserver& observer_;
};

}  // namespace

Value evaluate(const Program& program, NodeIndex node, const TagLookup& tags, Scratch& scratch,
               MismatchObserver& observer) {
  return Evaluation(program, tags, scratch, observer).run(node);
}

}  // namespace dbg::filter
