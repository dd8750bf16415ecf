// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Checks and builds labels and names.
#include "distributed/labels.h"

#include <algorithm>

#include "base/fnv_hash.h"
#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg::distributed {
namespace {

constexpr std::string_view kAnonymous = "anonymous";
constexpr std::string_view kLongestHalf = ":device";
constexpr std::size_t kMostNameBytes = kMostLabelBytes - kLongestHalf.size();
constexpr std::size_t kMostRanksBytes = 64;

bool may_stand_in_a_label(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

}  // namespace

std::string checked_group_name(std::string_view name) {
  if (name.empty()) return std::string(kAnonymous);
  const auto bad = std::find_if_not(name.begin(), name.end(), may_stand_in_a_label);
  if (bad != name.end()) {
    throw ConfigError(
        formatted("the group name '{}' has {} at byte {}; letters, digits and _ - . : may stand there, since "
                  "it becomes part of store keys and of what monitoring tools print.",
                  sanitised_group_name(name),
                  *bad > ' ' && *bad < 127 ? formatted("a '{}'", *bad)
                                           : formatted("the byte {:#04x}", static_cast<unsigned char>(*bad)),
                  bad - name.begin()));
  }
  if (name.size() > kMostNameBytes) {
    throw ConfigError(formatted("the group name '{}...' has {} bytes; at most {} fit into a label.", name.substr(0, 32),
                                name.size(), kMostNameBytes));
  }
  return std::string(name);
}

std::string sanitised_group_name(std::string_view name) {
  if (name.empty()) return std::string(kAnonymous);
  std::string clean(name.substr(0, kMostNameBytes));
  for (char& c : clean) {
    if (!may_stand_in_a_label(c)) c = '_';
  }
  return clean;
}

std::string label_of(std::string_view group_name, std::string_view half) {
  return formatted("{}:{}", group_name, half);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += '_';
    // Two in a row stay two: `0_1` reads as well as `0-1`.
    if (last > i + 1) {
      text += formatted("{}-{}", ranks[i], ranks[last]);
      i = last + 1;
    } else {
      text += formatted("{}", ranks[i]);
      ++i;
    }
  }
  if (text.size() <= kMostRanksBytes) return text;
  return formatted("{}ranks-{:016x}", ranks.size(), base::fnv_hash(text));
}

std::string unique_group_name(std::string_view label, const std::vector<int>& ranks, std::int64_t generation) {
  return formatted("{}@{}.g{}", label, ranks_text(ranks), generation);
}

}  // namespace dbg::distributed
