// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads and writes places as plain dicts.
#include "graft/place.h"

#include <ATen/core/Dict.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/fence.h"

namespace dbg::graft {
namespace {

using Dict = c10::impl::GenericDict;

constexpr std::string_view kRankSuffix = "_rank";
constexpr std::string_view kInfoSuffix = "_parallel_info";

// By walking: keys of such a dict may be of any kind, and are compared as they are.
std::optional<c10::IValue> entry_of(const Dict& dict, std::string_view key) {
  for (const auto& entry : dict) {
    if (entry.key().isString() && entry.key().toStringView() == key) return entry.value();
  }
  return std::nullopt;
}

void add_axes(GraftPlace& place, const Dict& dict) {
  for (const auto& entry : dict) {
    if (!entry.key().isString() || !entry.value().isInt()) continue;
    const std::string_view key = entry.key().toStringView();
    if (key.size() <= kRankSuffix.size() || !key.ends_with(kRankSuffix)) continue;
    const std::string axis(key.substr(0, key.size() - kRankSuffix.size()));
    const auto size = entry_of(dict, axis + "_size");
    if (!size || !size->isInt() || place.parallel.find(axis)) continue;
    const std::int64_t rank = entry.value().toInt();
    if (rank < 0 || rank >= size->toInt() || size->toInt() > std::numeric_limits<int>::max()) continue;
    static_cast<void>(
        base::run_fenced([&] { place.parallel.set(axis, static_cast<int>(rank), static_cast<int>(size->toInt())); }));
  }
}

}  // namespace

GraftPlace place_in(const c10::IValue& value) {
  GraftPlace place;
  if (!value.isGenericDict()) return place;
  const Dict dict = value.toGenericDict();
  if (const auto dims = entry_of(dict, "dims"); dims && dims->isString()) place.dims = dims->toStringRef();
  add_axes(place, dict);
  for (const auto& entry : dict) {
    if (!entry.key().isString() || !entry.value().isGenericDict()) continue;
    if (entry.key().toStringView().ends_with(kInfoSuffix)) add_axes(place, entry.value().toGenericDict());
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
