// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Words for places and things in a pickled value.
#include "codec/pickle_path.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "base/formatted.h"

namespace dbg::codec {
namespace {

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 40 && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::all_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x80 && (std::isalnum(byte) != 0 || c == '_');
         });
}

std::string key_text(const PickleGraph& graph, PickleRef key) {
  switch (key.kind) {
    case PickleKind::text:
      return formatted("'{}'", printable(graph.text_of(graph.spans[key.index]), 40));
    case PickleKind::integer:
      return std::to_string(key.integer);
    case PickleKind::real:
      return formatted("{}", key.real);
    case PickleKind::boolean:
      return key.index != 0 ? "True" : "False";
    default:
      return describe_kind(graph, key);
  }
}

}  // namespace

std::string path_text(const PickleGraph& graph, const PickleStep* path) {
  std::vector<const PickleStep*> steps;
  for (; path != nullptr; path = path->outer) steps.push_back(path);
  std::string out;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const PickleRef key = (*step)->key;
    if (key.kind == PickleKind::absent) {
      out += formatted("[{}]", (*step)->index);
      continue;
    }
    const bool is_bare = step == steps.rbegin() && key.kind == PickleKind::text;
    if (is_bare && is_word(graph.text_of(graph.spans[key.index]))) {
      out += graph.text_of(graph.spans[key.index]);
    } else {
      out += formatted("[{}]", key_text(graph, key));
    }
  }
  return out;
}

std::string at_place(const PickleGraph& graph, const PickleStep* path, std::string_view cause) {
  constexpr std::size_t shown_bytes = 200;
  std::string place = path_text(graph, path);
  if (place.empty()) return std::string(cause);
  if (place.size() > 2 * shown_bytes) place.replace(shown_bytes, place.size() - 2 * shown_bytes, " ... ");
  return formatted("{}: {}", place, cause);
}

std::string describe_kind(const PickleGraph& graph, PickleRef ref) {
  switch (ref.kind) {
    case PickleKind::none:
      return "None";
    case PickleKind::tuple:
      return "a tuple";
    case PickleKind::list:
      return "a list";
    case PickleKind::dict:
      return "a dict";
    case PickleKind::call:
      return graph.calls[ref.index].role == PickleRole::bytes_maker ? "bytes" : "a tensor or another torch object";
    default:
      return describe_refused(graph, ref);
  }
}

std::string describe_refused(const PickleGraph& graph, PickleRef ref) {
  switch (ref.kind) {
    case PickleKind::bytes:
      return "bytes";
    case PickleKind::set:
      return "a set";
    case PickleKind::big_integer:
      return "an integer beyond 64 bits";
    case PickleKind::storage:
      return "a bare storage";
    case PickleKind::unknown_id:
      return "a persistent id that is no storage";
    case PickleKind::global:
      return formatted("'{}' itself", graph.name_of(graph.globals[ref.index]));
    case PickleKind::object:
      return formatted("an object of '{}'", graph.name_of(graph.globals[ref.index]));
    default:
      return "something unreadable";
  }
}

}  // namespace dbg::codec
