// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Looks into records and prints what is there.
#include "cli/inspect_lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/dtype.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "base/tensor_blocks.h"
#include "compare/pair_compare.h"
#include "compare/report_label.h"
#include "compare/value_equality.h"

namespace dbg::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kWindowedAboveBytes = std::uint64_t{64} << 20;
constexpr std::int64_t kEdge = 3;  // rows and columns at each end

// The first and last few of `size`; all when they are few.
std::vector<std::int64_t> edge_places(std::int64_t size) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < std::min(size, 2 * kEdge); ++i)
    places.push_back(i < kEdge || size <= 2 * kEdge ? i : size - 2 * kEdge + i);
  return places;
}

// The corners of the tensor as a matrix, its last dimension the columns.
std::vector<std::vector<std::string>> corners_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !base::why_unreadable(tensor).empty()) return {};
  const std::int64_t columns = tensor.dim() == 0 ? 1 : tensor.size(-1);
  std::vector<std::pair<std::int64_t, std::size_t>> wanted;  // row-major index, row shown
  const std::vector<std::int64_t> rows = edge_places(tensor.numel() / columns);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const std::int64_t column : edge_places(columns)) wanted.emplace_back(rows[row] * columns + column, row);
  }
  std::vector<std::vector<std::string>> corners(rows.size());
  const auto item_bytes = static_cast<std::int64_t>(tensor.itemsize());
  base::TensorBlocks blocks(tensor, std::int64_t{1} << 16);
  std::size_t next = 0;
  while (next < wanted.size() && blocks.next()) {
    for (; next < wanted.size() && wanted[next].first < blocks.start() + blocks.elements(); ++next) {
      const auto [at, row] = wanted[next];
      corners[row].push_back(
          base::element_text(tensor.scalar_type(), blocks.data() + (at - blocks.start()) * item_bytes));
    }
  }
  return corners;
}

void look(InspectedRecord& record, bool with_corners) {
  const compare::Rules no_rules;
  compare::RankValue value =
      compare::load(record.file, compare::Side::baseline, record.file.descriptor.name, no_rules, kWindowedAboveBytes);
  record.left_out = value.left_out;
  for (compare::PartOfRank& part : compare::parts_of(value)) {
    InspectedValue one;
    one.part = part.part;
    one.is_tensor = part.value.value.isTensor();
    if (one.is_tensor) {
      one.info = describe(part.value.value.toTensor());
      if (with_corners) one.corners = corners_of(part.value.value.toTensor());
    } else {
      one.text = compare::value_text(part.value.value);
      if (part.value.value.isDouble()) {
        one.info.nan_count = std::isnan(part.value.value.toDouble());
        one.info.inf_count = std::isinf(part.value.value.toDouble());
      }
    }
    record.values.push_back(std::move(one));
  }
}

std::string head_of(const InspectedRecord& record, const std::string& part) {
  const RecordDescriptor& descriptor = record.file.descriptor;
  const std::string tags = compare::tags_text(descriptor.tags);
  return formatted("step={} rank={} {}{}{}", descriptor.step, descriptor.rank, compare::safe_text(descriptor.name),
                   compare::safe_text(part), tags.empty() ? "" : " " + compare::safe_text(tags));
}

Json number(double value) {
  if (std::isnan(value)) return nullptr;
  return value;
}

}  // namespace

InspectedRecord inspect(compare::RecordFile file, bool with_corners) {
  InspectedRecord record;
  record.file = std::move(file);
  if (const auto cause = base::run_fenced([&] { look(record, with_corners); })) record.cause = *cause;
  return record;
}

std::string inspect_text(const InspectedRecord& record) {
  if (!record.cause.empty()) return "unreadable: " + compare::safe_text(record.cause) + "\n";
  std::string text;
  for (const InspectedValue& value : record.values) {
    const TensorInfo& info = value.info;
    text += head_of(record, value.part) + "  ";
    if (!value.is_tensor) {
      text += value.text + "\n";
      continue;
    }
    text += formatted("{}[{}]", info.dtype, fmt::join(info.shape, ", "));
    if (info.has_values) {
      text += formatted("  min={} max={} mean={:.6g} abs_max={:.6g} nan={} inf={} zero={}\n",
                        info.min_text.empty() ? "nan" : info.min_text, info.max_text.empty() ? "nan" : info.max_text,
                        info.mean, info.abs_max, info.nan_count, info.inf_count, info.zero_count);
    } else {
      text += formatted("  ({})\n", info.note);
    }
    for (std::size_t row = 0; row < value.corners.size(); ++row) {
      if (row == kEdge && value.corners.size() == 2 * kEdge) text += "      ...\n";
      text += formatted("      {}\n", fmt::join(value.corners[row], "  "));
    }
  }
  if (!record.left_out.empty()) {
    text += head_of(record, "") + "  left out: " + compare::safe_text(record.left_out) + "\n";
  }
  return text;
}

std::string inspect_json(const InspectedRecord& record) {
  const auto line = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; };
  if (!record.cause.empty()) return line({{"path", record.file.path}, {"error", record.cause}});
  std::string text;
  for (const InspectedValue& value : record.values) {
    const RecordDescriptor& descriptor = record.file.descriptor;
    Json tags = Json::object();
    for (const auto& [key, tag] : descriptor.tags) tags[key] = python_text(tag.view());
    Json json = {{"path", record.file.path}, {"name", descriptor.name}, {"part", value.part},
                 {"step", descriptor.step},  {"rank", descriptor.rank}, {"dump_index", descriptor.dump_index},
                 {"tags", std::move(tags)}};
    if (!record.left_out.empty()) json["left_out"] = record.left_out;
    const TensorInfo& info = value.info;
    if (!value.is_tensor) {
      json["value"] = value.text;
    } else {
      json["dtype"] = info.dtype;
      json["shape"] = info.shape;
      if (!info.has_values) json["note"] = info.note;
      json["min"] = number(info.min);
      json["max"] = number(info.max);
      json["mean"] = number(info.mean);
      json["abs_max"] = number(info.abs_max);
      json["nan"] = info.nan_count;
      json["inf"] = info.inf_count;
      json["zero"] = info.zero_count;
      if (!value.corners.empty()) json["corners"] = value.corners;
    }
    text += line(json);
  }
  return text;
}

}  // namespace dbg::cli
