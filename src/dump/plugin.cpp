// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Plugin defaults, and the rewriting of `layers.N`.
#include "dbg/plugin.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "dbg/error.h"

namespace dbg {
namespace {

// Where the number of `layers.N` stands in a path, and its value.
struct LayerNumber {
  std::size_t begin;
  std::size_t end;
  std::int64_t value;
};

std::optional<LayerNumber> find_layer_number(std::string_view path, std::string_view prefix,
                                             const std::vector<std::string>& excluded) {
  std::size_t at = 0;
  if (!prefix.empty()) {
    if (path.substr(0, prefix.size()) != prefix || path.size() <= prefix.size() || path[prefix.size()] != '.') {
      return std::nullopt;
    }
    at = prefix.size() + 1;
  }
  while (at < path.size()) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    if (std::find(excluded.begin(), excluded.end(), segment) != excluded.end()) return std::nullopt;
    if (segment == "layers") {
      // Only the first one counts, with or without a number behind it.
      if (end == path.size()) return std::nullopt;
      const std::size_t number_begin = end + 1;
      const std::size_t number_end = std::min(path.find('.', number_begin), path.size());
      std::int64_t value = 0;
      const auto parsed = std::from_chars(path.data() + number_begin, path.data() + number_end, value);
      if (parsed.ec != std::errc() || parsed.ptr != path.data() + number_end || value < 0) return std::nullopt;
      return LayerNumber{number_begin, number_end, value};
    }
    at = end + 1;
  }
  return std::nullopt;
}

// Throws: ConfigError when the offset makes no sense.
std::int64_t global_number(std::int64_t number, std::int64_t offset, std::string_view name) {
  if (offset < 0 || number > std::numeric_limits<std::int64_t>::max() - offset) {
    throw ConfigError("PipelineLayerOffsetPlugin: the callback returned the layer offset " + std::to_string(offset) +
                      " for '" + std::string(name) + "'; expected the number of layers on earlier stages");
  }
  return number + offset;
}

}  // namespace

FrameworkPlugin::~FrameworkPlugin() = default;

std::optional<std::string> FrameworkPlugin::transform_model_param_name(const ModelInfo& /*model*/,
                                                                       const std::string& /*name*/) {
  return std::nullopt;
}

std::optional<std::int64_t> FrameworkPlugin::layer_id_of(std::string_view /*module_path*/) {
  return std::nullopt;
}

PipelineLayerOffsetPlugin::PipelineLayerOffsetPlugin(OffsetOf offset_of)
    : PipelineLayerOffsetPlugin(std::move(offset_of), Options{}) {}

PipelineLayerOffsetPlugin::PipelineLayerOffsetPlugin(OffsetOf offset_of, Options options)
    : offset_of_(std::move(offset_of)), options_(std::move(options)) {
  if (!offset_of_) {
    throw ConfigError("PipelineLayerOffsetPlugin: the callback is empty; pass one that returns a chunk's first layer");
  }
}

PipelineLayerOffsetPlugin::~PipelineLayerOffsetPlugin() = default;

std::optional<std::string> PipelineLayerOffsetPlugin::transform_model_param_name(const ModelInfo& model,
                                                                                 const std::string& name) {
  const std::optional<LayerNumber> number = find_layer_number(name, options_.prefix, options_.excluded);
  if (!number) return std::nullopt;
  const std::int64_t offset = offset_of_(model.model_chunk).value_or(0);
  if (offset == 0) return std::nullopt;
  return name.substr(0, number->begin) + std::to_string(global_number(number->value, offset, name)) +
         name.substr(number->end);
}

std::optional<std::int64_t> PipelineLayerOffsetPlugin::layer_id_of(std::string_view module_path) {
  const std::optional<LayerNumber> number = find_layer_number(module_path, options_.prefix, options_.excluded);
  if (!number) return std::nullopt;
  return global_number(number->value, offset_of_(0).value_or(0), module_path);
}

std::optional<std::int64_t> layer_id_in_path(std::string_view module_path) {
  const std::optional<LayerNumber> number = find_layer_number(module_path, "", {});
  if (!number) return std::nullopt;
  return number->value;
}

}  // namespace dbg
