// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads the dims language.
#include "dbg/dims.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg {
namespace {

constexpr std::array<std::string_view, 13> kAxes = {
    "tp", "cp", "ep", "sp", "dp", "etp", "edp", "attn_tp", "attn_dp", "moe_ep", "moe_tp", "moe_dp", "recompute_pseudo"};

bool is_axis(std::string_view name) {
  return std::find(kAxes.begin(), kAxes.end(), name) != kAxes.end();
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_name(std::string_view text) {
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

constexpr std::string_view kBlanks = " \t\n\r\v\f";

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Dim> dims;
  std::vector<std::string> replicated_axes;
  std::string dp_axis = "dp";

  void run() {
    const std::size_t mark = text_.find('#');
    for (const std::string_view word : words(text_.substr(0, mark))) dims.push_back(parse_dim(word));
    if (dims.empty()) fail(text_, "no dimension is named; expected one word for each, such as 'b s[cp] h[tp]'");
    if (mark == std::string_view::npos) return;
    for (const std::string_view word : words(text_.substr(mark + 1))) parse_declaration(word);
  }

 private:
  // Pieces of a text: views into `text_`, so that an error can say where it is.
  static std::vector<std::string_view> words(std::string_view text) {
    std::vector<std::string_view> found;
    for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
      const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
      found.push_back(text.substr(at, end - at));
      at = text.find_first_not_of(kBlanks, end);
    }
    return found;
  }

  static std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> found;
    for (;;) {
      const std::size_t at = text.find(separator);
      found.push_back(text.substr(0, at));
      if (at == std::string_view::npos) return found;
      text = text.substr(at + 1);
    }
  }

  [[noreturn]] void fail(std::string_view where, const std::string& reason) const {
    const auto byte = static_cast<std::size_t>(where.data() - text_.data());
    const std::string_view before = text_.substr(0, byte);
    const auto column = 1 + std::count_if(before.begin(), before.end(),
                                          [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; });
    std::string shown(text_);
    for (char& c : shown) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    }
    const std::string indent(static_cast<std::size_t>(column) + 1, ' ');
    throw ConfigError(formatted("dims: column {}: {}\n  {}\n{}^", column, reason, shown, indent));
  }

  Dim parse_dim(std::string_view word) {
    Dim dim;
    if (word == "1") return dim;
    const std::size_t bracket = word.find('[');
    parse_names(word, word.substr(0, bracket), dim);
    if (bracket == std::string_view::npos) return dim;
    std::string_view inside = word.substr(bracket + 1);
    const std::size_t end = inside.find(']');
    if (end == std::string_view::npos) {
      fail(word.substr(bracket), "'[' is never closed (no blanks inside brackets: 's[cp,sp]')");
    }
    if (end + 1 != inside.size()) fail(inside.substr(end + 1), "text behind the bracket; expected a blank");
    inside = inside.substr(0, end);
    for (const std::string_view text : split(inside, ',')) dim.shards.push_back(parse_shard(text));
    return dim;
  }

  void parse_names(std::string_view word, std::string_view text, Dim& dim) {
    std::vector<std::string_view> names = {text};
    if (!text.empty() && text.front() == '(') {
      if (text.size() < 2 || text.back() != ')') {
        fail(word, "a fused dimension is '(a*b)', without blanks and with nothing else behind it but brackets");
      }
      names = split(text.substr(1, text.size() - 2), '*');
      if (names.size() < 2) fail(text, "a fused dimension needs at least two names: '(a*b)'");
    }
    for (const std::string_view name : names) {
      if (!is_name(name)) {
        fail(name, formatted("'{}' is no name: letters, digits and '_', not beginning with a digit", name));
      }
      if (!names_.insert(std::string(name)).second) fail(name, formatted("'{}' names two dimensions", name));
      dim.names.emplace_back(name);
    }
  }

  DimShard parse_shard(std::string_view text) {
    DimShard shard;
    const std::size_t colon = text.find(':');
    const std::string_view axis = text.substr(0, colon);
    require_axis(axis);
    if (!shared_axes_.insert(std::string(axis)).second) {
      fail(axis, formatted("axis {} shares two dimensions, or one twice", axis));
    }
    shard.axis = axis;
    if (colon == std::string_view::npos) return shard;
    bool has_order = false;
    for (const std::string_view word : split(text.substr(colon + 1), '+')) {
      if (word.empty() || word == "sharded") continue;
      if (word == "zigzag" || word == "natural") {
        if (has_order) fail(word, "a second order for the axis");
        has_order = true;
        shard.is_zigzag = word == "zigzag";
      } else if (word == "partial") {
        if (shard.is_partial) fail(word, "'partial' is said twice");
        shard.is_partial = true;
      } else {
        fail(word, formatted("'{}' is none of zigzag, natural, partial, sharded", word));
      }
    }
    return shard;
  }

  void parse_declaration(std::string_view word) {
    constexpr std::string_view kAlias = "dp:=";
    constexpr std::string_view kReplicated = ":replicated";
    if (word.substr(0, kAlias.size()) == kAlias) {
      if (has_alias_) fail(word, "'dp:=' is said twice");
      has_alias_ = true;
      require_axis(word.substr(kAlias.size()));
      dp_axis = word.substr(kAlias.size());
      return;
    }
    if (word.size() <= kReplicated.size() || word.substr(word.size() - kReplicated.size()) != kReplicated) {
      fail(word, formatted("'{}' is neither 'axis:replicated' nor 'dp:=axis'", word));
    }
    const std::string_view axis = word.substr(0, word.size() - kReplicated.size());
    require_axis(axis);
    if (shared_axes_.count(std::string(axis)) > 0) {
      fail(axis, formatted("axis {} is replicated here and shares a dimension on the left", axis));
    }
    if (std::find(replicated_axes.begin(), replicated_axes.end(), axis) != replicated_axes.end()) {
      fail(axis, formatted("axis {} is said to be replicated twice", axis));
    }
    replicated_axes.emplace_back(axis);
  }

  void require_axis(std::string_view name) const {
    if (!is_axis(name)) fail(name, formatted("'{}' is no axis; they are {}", name, fmt::join(kAxes, ", ")));
  }

  std::string_view text_;
  std::set<std::string> names_;
  std::set<std::string> shared_axes_;
  bool has_alias_ = false;
};

}  // namespace

Dims Dims::parse(std::string_view text) {
  Parser parser(text);
  parser.run();
  Dims result;
  result.dims_ = std::move(parser.dims);
  result.replicated_axes_ = std::move(parser.replicated_axes);
  result.dp_axis_ = std::move(parser.dp_axis);
  return result;
}

}  // namespace dbg
