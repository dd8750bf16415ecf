// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Reads records and understands their meta.
#include "compare/side.h"

#include <limits>
#include <set>
#include <utility>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/dump_record.h"

namespace dbg::compare {
namespace {

constexpr std::string_view kInfoSuffix = "_parallel_info";
constexpr std::string_view kRankSuffix = "_rank";
constexpr std::string_view kRecompute = "recompute_pseudo";

using Dict = c10::impl::GenericDict;

std::optional<std::int64_t> integer_in(const Dict& dict, const std::string& key) {
  const auto found = dict.find(key);
  if (found == dict.end() || !found->value().isInt()) return std::nullopt;
  return found->value().toInt();
}

void set_axis(ParallelState& place, std::string_view axis, std::int64_t rank, std::int64_t size) {
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  if (rank < 0 || size < 1 || rank >= size || size > kLargest) {
    throw ConfigError(formatted("axis {}: rank {} of {}, which can't be", axis, rank, size));
  }
  if (!place.find(axis)) place.set(axis, static_cast<int>(rank), static_cast<int>(size));
}

void add_info(ParallelState& place, const Dict& info) {
  for (const auto& entry : info) {
    if (!entry.key().isString() || !entry.value().isInt()) continue;
    const std::string key = entry.key().toStringRef();
    if (key.size() <= kRankSuffix.size() || !key.ends_with(kRankSuffix)) continue;
    const std::string axis = key.substr(0, key.size() - kRankSuffix.size());
    if (const auto size = integer_in(info, axis + "_size")) set_axis(place, axis, entry.value().toInt(), *size);
  }
}

void add_parts(const c10::IValue& value, const std::string& part,
               std::vector<std::pair<std::string, c10::IValue>>& to) {
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      std::string key = "?";
      if (entry.key().isString()) key = formatted("'{}'", entry.key().toStringRef());
      if (entry.key().isInt()) key = formatted("{}", entry.key().toInt());
      add_parts(entry.value(), formatted("{}[{}]", part, key), to);
    }
    return;
  }
  if (value.isList() || value.isTuple()) {
    std::size_t at = 0;
    const auto add = [&](const c10::IValue& element) { add_parts(element, formatted("{}[{}]", part, at++), to); };
    if (value.isTuple()) {
      for (const c10::IValue& element : value.toTupleRef().elements()) add(element);
    } else {
      for (const c10::IValue& element : value.toList()) add(element);
    }
    return;
  }
  to.emplace_back(part, value);
}

}  // namespace

ParallelState place_of(const c10::IValue& meta) {
  ParallelState place;
  const Dict dict = meta.toGenericDict();
  for (const auto& entry : dict) {
    const std::string_view key = entry.key().toStringView();
    if (key.ends_with(kInfoSuffix) && entry.value().isGenericDict()) add_info(place, entry.value().toGenericDict());
  }
  const auto rank = integer_in(dict, std::string(kRecompute) + "_rank");
  const auto size = integer_in(dict, std::string(kRecompute) + "_size");
  if (rank && size) set_axis(place, kRecompute, *rank, *size);
  return place;
}

RankValue load(const RecordFile& file, Side side, std::string_view name, const Rules& rules,
               std::uint64_t windowed_above_bytes) {
  std::vector<std::string> left_out;
  codec::ReadLimits limits;
  limits.windowed_above_bytes = windowed_above_bytes;
  const DumpRecord record = dumping::read_record_within(file.path, limits, &left_out);
  RankValue loaded;
  loaded.rank = file.descriptor.rank;
  loaded.value = record.value;
  if (!left_out.empty()) loaded.left_out = left_out.front();
  const Dict meta = record.meta.toGenericDict();
  const auto dims = meta.find("dims");
  if (dims != meta.end() && dims->value().isString()) loaded.dims_text = dims->value().toStringRef();
  loaded.dims = rules.dims_of(side, name, loaded.dims_text);
  loaded.place = place_of(record.meta);
  return loaded;
}

std::vector<PartOfRank> parts_of(const RankValue& value) {
  std::vector<std::pair<std::string, c10::IValue>> leaves;
  add_parts(value.value, "", leaves);
  std::vector<PartOfRank> parts;
  parts.reserve(leaves.size());
  for (auto& [part, leaf] : leaves) {
    PartOfRank one{part, value};
    one.value.value = std::move(leaf);
    parts.push_back(std::move(one));
  }
  return parts;
}

}  // namespace dbg::compare
