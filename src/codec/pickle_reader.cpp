// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes values of a pickle's graph: plain ones here, tensors by the rules of torch's rebuild functions.
#include "codec/pickle_reader.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/formatted.h"
#include "codec/dict_guard.h"
#include "codec/pickle_path.h"
#include "codec/pickle_tensors.h"
#include "codec/pickle_text.h"

namespace dbg::codec {

PickleEnvironment::~PickleEnvironment() = default;

namespace {

class ValueMaker {
 public:
  ValueMaker(const PickleGraph& graph, PickleEnvironment& environment, const ReadLimits& limits, ReadBudget& budget,
             std::vector<Refusal>* refusals)
      : graph_(graph),
        budget_(budget),
        tensors_(graph, environment, limits, budget),
        refusals_(refusals),
        texts_(graph.spans.size()),
        entered_(graph.sequences.size()) {}

  PickledValue make() {
    if (graph_.root.kind == PickleKind::storage) return tensors_.storage(graph_.root.index);
    auto root = value(graph_.root, nullptr);
    if (!root) graph_.bytes.fail(0, formatted("the value itself can't be read: {}", last_reason_));
    if (refusals_ != nullptr && unlisted_ != 0) refusals_->push_back({"", formatted("and {} more", unlisted_)});
    return *std::move(root);
  }

 private:
  std::optional<c10::IValue> value(PickleRef ref, const PickleStep* path) {
    spend(path);
    switch (ref.kind) {
      case PickleKind::none:
        return c10::IValue();
      case PickleKind::boolean:
        return c10::IValue(ref.index != 0);
      case PickleKind::integer:
        return c10::IValue(ref.integer);
      case PickleKind::real:
        return c10::IValue(ref.real);
      case PickleKind::text:
        return text(ref.index, path);
      case PickleKind::list:
      case PickleKind::tuple:
      case PickleKind::dict:
        return container(ref, path);
      case PickleKind::call: {
        const MadeByCall& made = tensors_.call(ref.index, path);
        if (!made.value) return refuse(path, made.reason);
        return made.value;
      }
      default:
        return refuse(path, describe_refused(graph_, ref));
    }
  }

  std::optional<c10::IValue> text(std::size_t index, const PickleStep* path) {
    c10::IValue& made = texts_[index];
    if (made.isNone()) {
      std::string decoded;
      const PickleSpan span = graph_.spans[index];
      switch (decode_text(graph_.text_of(span), decoded)) {
        case TextState::malformed:
          graph_.bytes.fail(span.offset, "text that is not UTF-8");
        case TextState::surrogate:
          made = false;  // remembered: it may be met again a million times
          break;
        case TextState::fine:
          made = std::move(decoded);
      }
    }
    if (made.isBool()) return refuse(path, "text with a lone surrogate");
    return made;
  }

  std::optional<c10::IValue> container(PickleRef ref, const PickleStep* path) {
    if (entered_[ref.index]) return refuse(path, "a container that holds itself");
    if (budget_.depth == 0) fail(path, budget_.depth_spent("containers"));
    --budget_.depth;
    entered_[ref.index] = true;
    auto made = ref.kind == PickleKind::dict ? dict(ref, path) : sequence(ref, path);
    entered_[ref.index] = false;
    ++budget_.depth;
    return made;
  }

  std::optional<c10::IValue> sequence(PickleRef ref, const PickleStep* path) {
    const auto& entries = graph_.sequences[ref.index];
    std::vector<c10::IValue> values;
    values.reserve(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const PickleStep step{path, {}, i};
      auto entry = value(entries[i], &step);
      // None holds the place of a refused entry.
      values.push_back(entry ? *std::move(entry) : c10::IValue());
    }
    if (ref.kind == PickleKind::tuple) return c10::IValue(c10::ivalue::Tuple::create(std::move(values)));
    c10::impl::GenericList list(c10::AnyType::get());
    list.reserve(values.size());
    for (auto& entry : values) list.push_back(std::move(entry));
    return c10::IValue(std::move(list));
  }

  std::optional<c10::IValue> dict(PickleRef ref, const PickleStep* path) {
    const auto& entries = graph_.sequences[ref.index];
    std::vector<std::pair<c10::IValue, c10::IValue>> pairs;
    std::vector<std::size_t> hashes;
    c10::TypePtr key_type;
    for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleStep step{path, entries[i], 0};
      auto made_key = key(entries[i], &step);
      if (!made_key) continue;
      auto made_value = value(entries[i + 1], &step);
      if (!made_value) continue;
      hashes.push_back(c10::detail::DictKeyHash()(*made_key));
      const c10::TypePtr type = type_of_key(*made_key);
      if (key_type != nullptr && key_type->kind() != type->kind()) {
        key_type = c10::AnyType::get();
      } else if (key_type == nullptr) {
        key_type = type;
      }
      pairs.emplace_back(*std::move(made_key), *std::move(made_value));
    }
    const int usual_bits = least_table_bits(hashes.size());
    const int bits = table_bits(std::move(hashes));
    // In doubles: 2^64 is none of size_t's numbers.
    const double more_places = std::ldexp(1.0, bits) - std::ldexp(1.0, usual_bits);
    if (more_places > static_cast<double>(budget_.table_places)) {
      return refuse(path, formatted("a dict of {} keys that collide (chosen to?): its table would have 2^{} places",
                                    pairs.size(), bits));
    }
    budget_.table_places -= static_cast<std::size_t>(more_places);
    c10::impl::GenericDict dict(key_type != nullptr ? key_type : c10::StringType::get(), c10::AnyType::get());
    dict.reserve(pairs.size());
    for (auto& [made_key, made_value] : pairs) dict.insert_or_assign(std::move(made_key), std::move(made_value));
    return c10::IValue(std::move(dict));
  }

  std::optional<c10::IValue> key(PickleRef ref, const PickleStep* path) {
    switch (ref.kind) {
      case PickleKind::boolean:
      case PickleKind::integer:
      case PickleKind::real:
      case PickleKind::text:
        return value(ref, path);
      case PickleKind::call:
        if (graph_.calls[ref.index].role == PickleRole::complex) return value(ref, path);
        break;
      default:
        break;
    }
    spend(path);
    return refuse(path, formatted("a dict key that is {}", describe_kind(graph_, ref)));
  }

  static c10::TypePtr type_of_key(const c10::IValue& key) {
    if (key.isString()) return c10::StringType::get();
    if (key.isInt()) return c10::IntType::get();
    if (key.isBool()) return c10::BoolType::get();
    if (key.isDouble()) return c10::FloatType::get();
    return c10::ComplexType::get();
  }

  std::nullopt_t refuse(const PickleStep* path, std::string reason) {
    last_reason_ = std::move(reason);
    if (refusals_ == nullptr) return std::nullopt;
    if (refusals_->size() < max_listed_refusals) {
      refusals_->push_back({path_text(graph_, path), last_reason_});
    } else {
      ++unlisted_;
    }
    return std::nullopt;
  }

  void spend(const PickleStep* path) {
    if (budget_.items == 0) fail(path, budget_.items_spent());
    --budget_.items;
  }

  [[noreturn]] void fail(const PickleStep* path, std::string_view cause) const {
    graph_.bytes.fail(0, at_place(graph_, path, cause));
  }

  const PickleGraph& graph_;
  ReadBudget& budget_;
  PickleTensors tensors_;
  std::vector<Refusal>* refusals_;
  std::string last_reason_;
  std::size_t unlisted_ = 0;
  /// None: not made yet. False: refused.
  std::vector<c10::IValue> texts_;
  std::vector<bool> entered_;
};

}  // namespace

PickledValue make_pickled_value(const PickleGraph& graph, PickleEnvironment& environment, const ReadLimits& limits,
                                ReadBudget& budget, std::vector<Refusal>* refusals) {
  return ValueMaker(graph, environment, limits, budget, refusals).make();
}

}  // namespace dbg::codec
