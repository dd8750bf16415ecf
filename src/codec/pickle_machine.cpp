// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Runs the opcodes of a pickle into a graph of plain data.
#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "base/formatted.h"
#include "codec/pickle_graph.h"
#include "codec/pickle_opcodes.h"

namespace dbg::codec {
namespace {

constexpr std::size_t max_global_name_bytes = 1024;
/// Writers number the memo without gaps; this much is forgiven.
constexpr std::size_t max_memo_gap = 1024;

class Machine {
 public:
  Machine(PickleBytes&& bytes, ReadBudget& budget) : graph_(std::move(bytes)), budget_(budget) {}

  PickleGraph run() {
    for (;;) {
      opcode_offset_ = position_;
      const auto opcode = static_cast<unsigned char>(number(1));
      if (opcode == op_stop) break;
      spend(1);
      if (!run_plain(opcode) && !run_container(opcode) && !run_object(opcode)) {
        fail(formatted("opcode 0x{:02x} is none that is read", opcode));
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("the pickle ends with more or less than one value");
    graph_.root = stack_.back();
    graph_.size_bytes = position_;
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(std::string_view cause) const { graph_.bytes.fail(opcode_offset_, cause); }

  void spend(std::size_t items) {
    if (budget_.items < items) fail(budget_.items_spent());
    budget_.items -= items;
  }

  // Bytes.

  PickleSpan take(std::uint64_t count) {
    graph_.bytes.require(position_, count);
    const PickleSpan span{position_, count};
    position_ += count;
    return span;
  }

  std::uint64_t number(int size) {
    const std::string_view bytes = graph_.text_of(take(static_cast<std::uint64_t>(size)));
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

  PickleSpan line() {
    const std::uint64_t start = position_;
    while (number(1) != '\n') {
      if (position_ - start > max_global_name_bytes) fail("a global name without an end");
    }
    return {start, position_ - start - 1};
  }

  // The stack. Nothing below the last mark can be taken.

  void push(PickleRef ref) { stack_.push_back(ref); }
  void push(PickleKind kind, std::size_t index = 0) { stack_.push_back(PickleRef::of(kind, index)); }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleRef& top() {
    if (stack_.size() <= floor()) fail("the stack is empty here");
    return stack_.back();
  }

  PickleRef pop() {
    const PickleRef ref = top();
    stack_.pop_back();
    return ref;
  }

  /// The number of values above the last mark, which is removed.
  std::size_t pop_mark() {
    if (marks_.empty()) fail("there is no mark here");
    const std::size_t count = stack_.size() - marks_.back();
    marks_.pop_back();
    return count;
  }

  std::vector<PickleRef> pop_last(std::size_t count) {
    if (stack_.size() - floor() < count) fail("the stack is empty here");
    std::vector<PickleRef> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  void push_span(PickleKind kind, PickleSpan span) {
    graph_.spans.push_back(span);
    push(kind, graph_.spans.size() - 1);
  }

  void push_sequence(PickleKind kind, std::vector<PickleRef> values = {}) {
    graph_.sequences.push_back(std::move(values));
    push(kind, graph_.sequences.size() - 1);
  }

  // The memo.

  void memoize(std::uint64_t index) {
    const PickleRef value = top();
    if (index > memoized_ + max_memo_gap) fail(formatted("memo number {} is far above all others", index));
    if (index >= memo_.size()) memo_.resize(index + 1);
    if (memo_[index].kind == PickleKind::absent) ++memoized_;
    memo_[index] = value;
  }

  void recall(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index].kind == PickleKind::absent) {
      fail(formatted("nothing is memoized as {}", index));
    }
    push(memo_[index]);
  }

  // Opcodes.

  bool run_plain(unsigned char opcode) {
    switch (opcode) {
      case op_proto:
        if (const auto protocol = number(1); protocol > 5) fail(formatted("protocol {} is above 5", protocol));
        return true;
      case op_frame:
        // Frames group opcodes for readers that buffer; the length only has to be possible.
        if (const auto length = number(8); length > graph_.bytes.limit() - position_) {
          fail(formatted("a frame of {} bytes where {} are left", length, graph_.bytes.limit() - position_));
        }
        return true;
      case op_none:
        push(PickleKind::none);
        return true;
      case op_newtrue:
      case op_newfalse:
        push(PickleKind::boolean, opcode == op_newtrue ? 1 : 0);
        return true;
      case op_binint:
        push(PickleRef::of_integer(static_cast<std::int32_t>(number(4))));
        return true;
      case op_binint1:
        push(PickleRef::of_integer(static_cast<std::int64_t>(number(1))));
        return true;
      case op_binint2:
        push(PickleRef::of_integer(static_cast<std::int64_t>(number(2))));
        return true;
      case op_long1:
        push_long(take(number(1)));
        return true;
      case op_long4:
        push_long(take(number(4)));
        return true;
      case op_binfloat:
        push_real();
        return true;
      case op_short_binunicode:
        push_span(PickleKind::text, take(number(1)));
        return true;
      case op_binunicode:
        push_span(PickleKind::text, take(number(4)));
        return true;
      case op_binunicode8:
        push_span(PickleKind::text, take(number(8)));
        return true;
      case op_short_binbytes:
        push_span(PickleKind::bytes, take(number(1)));
        return true;
      case op_binbytes:
        push_span(PickleKind::bytes, take(number(4)));
        return true;
      case op_binbytes8:
      case op_bytearray8:
        push_span(PickleKind::bytes, take(number(8)));
        return true;
      case op_binput:
        memoize(number(1));
        return true;
      case op_long_binput:
        memoize(number(4));
        return true;
      case op_memoize:
        memoize(memoized_);
        return true;
      case op_binget:
        recall(number(1));
        return true;
      case op_long_binget:
        recall(number(4));
        return true;
      default:
        return false;
    }
  }

  void push_long(PickleSpan span) {
    const std::string_view bytes = graph_.text_of(span);
    const bool negative = !bytes.empty() && static_cast<signed char>(bytes.back()) < 0;
    const char fill = negative ? '\xff' : '\0';
    // More than 8 bytes are fine as long as they only repeat the sign.
    const bool fits =
        bytes.size() <= 8 || (std::all_of(bytes.begin() + 8, bytes.end(), [&](char c) { return c == fill; }) &&
                              (static_cast<signed char>(bytes[7]) < 0) == negative);
    if (!fits) {
      push_span(PickleKind::big_integer, span);
      return;
    }
    auto value = negative ? ~std::uint64_t{0} : std::uint64_t{0};
    for (std::size_t i = std::min<std::size_t>(bytes.size(), 8); i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    push(PickleRef::of_integer(static_cast<std::int64_t>(value)));
  }

  void push_real() {
    PickleRef ref;
    ref.kind = PickleKind::real;
    // The one number that stands with its highest byte first.
    ref.real = std::bit_cast<double>(__builtin_bswap64(number(8)));
    push(ref);
  }

  bool run_container(unsigned char opcode) {
    switch (opcode) {
      case op_mark:
        marks_.push_back(stack_.size());
        return true;
      case op_pop:
        if (!marks_.empty() && stack_.size() == marks_.back()) {
          marks_.pop_back();
        } else {
          pop();
        }
        return true;
      case op_pop_mark:
        pop_last(pop_mark());
        return true;
      case op_dup:
        push(top());
        return true;
      case op_empty_tuple:
        push_sequence(PickleKind::tuple);
        return true;
      case op_tuple1:
      case op_tuple2:
      case op_tuple3:
        push_sequence(PickleKind::tuple, pop_last(static_cast<std::size_t>(opcode - op_tuple1 + 1)));
        return true;
      case op_tuple:
        push_sequence(PickleKind::tuple, pop_last(pop_mark()));
        return true;
      case op_empty_list:
        push_sequence(PickleKind::list);
        return true;
      case op_append:
        add(PickleKind::list, pop_last(1));
        return true;
      case op_appends:
        add(PickleKind::list, pop_last(pop_mark()));
        return true;
      case op_empty_dict:
        push_sequence(PickleKind::dict);
        return true;
      case op_setitem:
        add(PickleKind::dict, pop_last(2));
        return true;
      case op_setitems:
        add(PickleKind::dict, pop_last(pop_mark()));
        return true;
      case op_empty_set:
        push(PickleKind::set);
        return true;
      case op_additems:
        add(PickleKind::set, pop_last(pop_mark()));
        return true;
      case op_frozenset:
        pop_last(pop_mark());
        push(PickleKind::set);
        return true;
      default:
        return false;
    }
  }

  /// Adds values to the container on top. An object of an unknown class may be any container; its contents are dropped.
  void add(PickleKind kind, const std::vector<PickleRef>& values) {
    const PickleRef target = top();
    if (target.kind == PickleKind::object) return;
    if (target.kind != kind) fail("entries are added to something else than such a container");
    if (kind == PickleKind::set) return;
    if (kind == PickleKind::dict && values.size() % 2 != 0) fail("a dict gets a key without a value");
    auto& sequence = graph_.sequences[target.index];
    sequence.insert(sequence.end(), values.begin(), values.end());
  }

  bool run_object(unsigned char opcode) {
    switch (opcode) {
      case op_global: {
        const PickleSpan module = line();
        push_global(module, line());
        return true;
      }
      case op_stack_global: {
        const PickleRef name = pop();
        const PickleRef module = pop();
        if (module.kind != PickleKind::text || name.kind != PickleKind::text) fail("a global whose name is no text");
        push_global(graph_.spans[module.index], graph_.spans[name.index]);
        return true;
      }
      case op_reduce: {
        const PickleRef arguments = pop();
        call(pop(), arguments);
        return true;
      }
      case op_newobj: {
        const PickleRef arguments = pop();
        make(pop(), arguments);
        return true;
      }
      case op_newobj_ex: {
        pop();
        const PickleRef arguments = pop();
        make(pop(), arguments);
        return true;
      }
      case op_build: {
        // State of objects: attributes of an OrderedDict or a tensor, or of something whose contents are dropped
        // anyway.
        pop();
        const PickleKind kind = top().kind;
        if (kind != PickleKind::object && kind != PickleKind::dict && kind != PickleKind::call) {
          fail("state is set on something that has none");
        }
        return true;
      }
      case op_binpersid:
        push_persistent(pop());
        return true;
      default:
        return false;
    }
  }

  void push_global(PickleSpan module, PickleSpan name) {
    if (std::max(module.size, name.size) > max_global_name_bytes) fail("a global name without an end");
    PickleGlobal global = find_pickle_global(graph_.text_of(module), graph_.text_of(name));
    global.module = module;
    global.name = name;
    graph_.globals.push_back(global);
    push(PickleKind::global, graph_.globals.size() - 1);
  }

  const std::vector<PickleRef>& sequence_of(PickleRef ref) const { return graph_.sequences[ref.index]; }

  void call(PickleRef function, PickleRef arguments) {
    if (function.kind == PickleKind::object) return push(function);
    if (function.kind != PickleKind::global) fail("something that is no global is called");
    if (arguments.kind != PickleKind::tuple) fail("a call whose arguments are no tuple");
    const PickleRole role = graph_.globals[function.index].role;
    switch (role) {
      case PickleRole::ordered_dict:
        return push_ordered_dict(arguments);
      case PickleRole::size:
        return push_size(arguments);
      case PickleRole::set_maker:
        return push(PickleKind::set);
      case PickleRole::unknown:
      case PickleRole::dtype:
      case PickleRole::storage_class:
      case PickleRole::plain_tensor_class:
        return push(PickleKind::object, function.index);
      default:
        graph_.calls.push_back({role, arguments.index, opcode_offset_});
        return push(PickleKind::call, graph_.calls.size() - 1);
    }
  }

  /// A new object of a class, without a call of its constructor.
  void make(PickleRef type, PickleRef arguments) {
    if (type.kind == PickleKind::object) return push(type);
    if (type.kind != PickleKind::global || arguments.kind != PickleKind::tuple) fail("an object of no class");
    if (graph_.globals[type.index].role == PickleRole::ordered_dict) return push_ordered_dict(arguments);
    if (graph_.globals[type.index].role == PickleRole::tensor_metadata) return call(type, arguments);
    push(PickleKind::object, type.index);
  }

  /// OrderedDict() or OrderedDict([(key, value), ...]).
  void push_ordered_dict(PickleRef arguments) {
    std::vector<PickleRef> entries;
    const auto& given = sequence_of(arguments);
    if (given.size() > 1 || (given.size() == 1 && given[0].kind != PickleKind::list)) {
      fail("an OrderedDict of something else than pairs");
    }
    if (given.size() == 1) {
      // The same list can be given again and again at the cost of three opcodes: its copies are paid for.
      spend(2 * sequence_of(given[0]).size());
      for (const PickleRef pair : sequence_of(given[0])) {
        const bool is_pair =
            (pair.kind == PickleKind::list || pair.kind == PickleKind::tuple) && sequence_of(pair).size() == 2;
        if (!is_pair) fail("an OrderedDict of something else than pairs");
        entries.insert(entries.end(), sequence_of(pair).begin(), sequence_of(pair).end());
      }
    }
    push_sequence(PickleKind::dict, std::move(entries));
  }

  /// torch.Size(()) is a tuple to everyone else.
  void push_size(PickleRef arguments) {
    const auto& given = sequence_of(arguments);
    if (given.empty()) return push_sequence(PickleKind::tuple);
    if (given.size() != 1 || (given[0].kind != PickleKind::tuple && given[0].kind != PickleKind::list)) {
      fail("a torch.Size of something else than a tuple");
    }
    push(PickleKind::tuple, given[0].index);
  }

  /// ("storage", class, key, location, elements[, None]). The location is ignored: everything is read to the host.
  void push_persistent(PickleRef id) {
    const bool is_tuple = id.kind == PickleKind::tuple && !sequence_of(id).empty();
    const PickleRef* parts = is_tuple ? sequence_of(id).data() : nullptr;
    const std::size_t count = is_tuple ? sequence_of(id).size() : 0;
    const bool is_storage =
        is_tuple && parts[0].kind == PickleKind::text && graph_.text_of(graph_.spans[parts[0].index]) == "storage";
    if (!is_storage) return push(PickleKind::unknown_id);
    if ((count != 5 && count != 6) || parts[1].kind != PickleKind::global || parts[2].kind != PickleKind::text ||
        parts[4].kind != PickleKind::integer || parts[4].integer < 0) {
      fail("a persistent id of a storage that is not (class, key, location, elements)");
    }
    if (count == 6 && parts[5].kind != PickleKind::none) fail("a storage that is a view of another (torch before 0.4)");
    const PickleGlobal& type = graph_.globals[parts[1].index];
    if (type.role != PickleRole::storage_class) fail(formatted("'{}' is no storage class", graph_.name_of(type)));
    graph_.storages.push_back({graph_.spans[parts[2].index], type.dtype, parts[4].integer, opcode_offset_});
    push(PickleKind::storage, graph_.storages.size() - 1);
  }

  PickleGraph graph_;
  ReadBudget& budget_;
  std::uint64_t position_ = 0;
  std::uint64_t opcode_offset_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PickleRef> memo_;
  std::size_t memoized_ = 0;
};

}  // namespace

std::string PickleGraph::name_of(const PickleGlobal& global) const {
  return printable(std::string(text_of(global.module)) + "." + std::string(text_of(global.name)));
}

PickleGraph read_pickle_graph(PickleBytes bytes, ReadBudget& budget) {
  return Machine(std::move(bytes), budget).run();
}

}  // namespace dbg::codec
