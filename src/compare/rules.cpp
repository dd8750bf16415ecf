// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads rules, from options and from a file.
#include "compare/rules.h"

#include <re2/re2.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "base/errno_text.h"
#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/record_pairing.h"

namespace dbg::compare {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::shared_ptr<const re2::RE2> compile(std::string_view text, std::string_view rule) {
  const re2::RE2::Options quiet(re2::RE2::Quiet);
  auto pattern = std::make_shared<const re2::RE2>(re2::StringPiece(text.data(), text.size()), quiet);
  if (!pattern->ok()) {
    throw ConfigError(
        formatted("rule '{}': '{}' is no regex: {}; a character that stands for itself takes a \\ before it", rule,
                  text, pattern->error()));
  }
  return pattern;
}

bool is_found(const re2::RE2& pattern, std::string_view name) {
  return re2::RE2::PartialMatch(re2::StringPiece(name.data(), name.size()), pattern);
}

// `regex: text` to both.
std::pair<std::string_view, std::string_view> split(std::string_view text, std::string_view what) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string_view::npos || trimmed(text.substr(0, colon)).empty()) {
    throw ConfigError(formatted("rule '{}': expected 'regex: {}'", text, what));
  }
  return {trimmed(text.substr(0, colon)), trimmed(text.substr(colon + 2))};
}

}  // namespace

void Rules::add_tolerance(std::string_view text) {
  const auto [regex, tolerance] = split(text, "tolerance', such as '.*: rel <= 1e-3 or max_abs <= 1e-5");
  tolerances_.push_back({compile(regex, text), Tolerance::parse(tolerance)});
}

void Rules::add_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) {
    const int code = errno;
    throw IoError(formatted("rules file '{}' can't be opened: {}", path, base::errno_text(code)), code);
  }
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') continue;
    try {
      add_line(text);
    } catch (const ConfigError& error) {
      throw ConfigError(formatted("rules file '{}', line {}: {}", path, number, error.what()));
    }
  }
  if (file.bad()) throw IoError(formatted("rules file '{}' can't be read to its end", path), EIO);
}

void Rules::add_line(std::string_view line) {
  const std::size_t blank = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, blank);
  const std::string_view rest = trimmed(line.substr(blank));
  if (word == "rule") {
    add_tolerance(rest);
    return;
  }
  if (word == "map") {
    NameRule::parse(rest);
    name_maps_.emplace_back(rest);
    return;
  }
  if (word == "ignore-tag") {
    if (rest.empty()) throw ConfigError("ignore-tag: no tag is named");
    ignored_tags_.emplace_back(rest);
    return;
  }
  const bool is_forced = !word.empty() && word.back() == '!';
  const std::string_view kind = word.substr(0, word.size() - (is_forced ? 1 : 0));
  std::optional<Side> side;
  if (kind == "baseline-dims") side = Side::baseline;
  if (kind == "target-dims") side = Side::target;
  if (!side && kind != "dims") {
    throw ConfigError(
        formatted("'{}' begins no rule; rules are rule, dims, baseline-dims, target-dims (these three also with !), "
                  "map, ignore-tag",
                  word));
  }
  const auto [regex, dims] = split(rest, "dims', such as 'attn_out: b s h[tp]");
  dims_.push_back({compile(regex, rest), Dims::parse(dims), side, is_forced});
}

const Tolerance* Rules::tolerance_of(std::string_view name) const {
  for (const ToleranceRule& rule : tolerances_) {
    if (is_found(*rule.pattern, name)) return &rule.tolerance;
  }
  return nullptr;
}

std::optional<Dims> Rules::dims_of(Side side, std::string_view name, std::string_view in_meta) const {
  for (const DimsRule& rule : dims_) {
    const bool applies = (!rule.side || *rule.side == side) && (rule.is_forced || in_meta.empty());
    if (applies && is_found(*rule.pattern, name)) return rule.dims;
  }
  if (in_meta.empty()) return std::nullopt;
  return Dims::parse(in_meta);
}

}  // namespace dbg::compare
