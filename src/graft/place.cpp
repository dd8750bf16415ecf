// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads and writes places as plain dicts.
#include "graft/place.h"

#include <ATen/core/Dict.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/fence.h"

namespace dbg::graft {
namespace {

using Dict = c10::impl::GenericDict;

constexpr std::string_view kRankSuffix = "_rank";
constexpr std::string_view kSizeSuffix = "_size";
constexpr std::string_view kInfoSuffix = "_parallel_info";

// Such a dict comes from a peer, with millions of entries if that likes: each is walked once, and nothing that is
// looked up for an entry grows with their number.
constexpr std::size_t kMostAxes = 64;
constexpr std::size_t kMostInfos = 16;

using Numbers = std::map<std::string_view, std::int64_t>;

void add_axes(GraftPlace& place, const Dict& dict) {
  Numbers ranks;
  Numbers sizes;
  for (const auto& entry : dict) {
    if (!entry.key().isString() || !entry.value().isInt()) continue;
    const std::string_view key = entry.key().toStringView();
    if (key.size() > kRankSuffix.size() && key.ends_with(kRankSuffix)) {
      ranks.emplace(key.substr(0, key.size() - kRankSuffix.size()), entry.value().toInt());
    } else if (key.ends_with(kSizeSuffix)) {
      sizes.emplace(key.substr(0, key.size() - kSizeSuffix.size()), entry.value().toInt());
    }
  }
  for (const auto& entry : ranks) {
    const std::string axis(entry.first);
    const std::int64_t rank = entry.second;
    if (place.parallel.axes().size() >= kMostAxes) return;
    const auto size = sizes.find(entry.first);
    if (size == sizes.end() || place.parallel.find(axis)) continue;
    if (rank < 0 || rank >= size->second || size->second > std::numeric_limits<int>::max()) continue;
    static_cast<void>(
        base::run_fenced([&] { place.parallel.set(axis, static_cast<int>(rank), static_cast<int>(size->second)); }));
  }
}

}  // namespace

GraftPlace place_in(const c10::IValue& value) {
  GraftPlace place;
  if (!value.isGenericDict()) return place;
  const Dict dict = value.toGenericDict();
  add_axes(place, dict);
  std::size_t infos = 0;
  // By walking: keys of such a dict may be of any kind, and are compared as they are.
  for (const auto& entry : dict) {
    if (!entry.key().isString()) continue;
    const std::string_view key = entry.key().toStringView();
    if (key == "dims" && entry.value().isString()) place.dims = entry.value().toStringRef();
    // The same dict may stand under many keys.
    if (!entry.value().isGenericDict() || !key.ends_with(kInfoSuffix) || ++infos > kMostInfos) continue;
    add_axes(place, entry.value().toGenericDict());
  }
  return place;
}

GraftPlace merged(GraftPlace said, const GraftPlace& otherwise) {
  if (said.dims.empty()) said.dims = otherwise.dims;
  for (const ParallelAxis& axis : otherwise.parallel.axes()) {
    if (!said.parallel.find(axis.name)) said.parallel.set(axis.name, axis.rank, axis.size);
  }
  return said;
}

c10::IValue to_dict(const GraftPlace& place) {
  Dict dict(c10::StringType::get(), c10::AnyType::get());
  if (!place.dims.empty()) dict.insert("dims", place.dims);
  for (const ParallelAxis& axis : place.parallel.axes()) {
    dict.insert(axis.name + "_rank", static_cast<std::int64_t>(axis.rank));
    dict.insert(axis.name + "_size", static_cast<std::int64_t>(axis.size));
  }
  return c10::IValue(std::move(dict));
}

}  // namespace dbg::graft
