// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The program's own formatting and json, in headers of its own choice.
#include <fmt/format.h>

// As a json library from before versions were part of its names: these are the plainest names there can be, and their
// layout is not that of the library's own configuration.
#define JSON_DIAGNOSTICS 1
#define NLOHMANN_JSON_NAMESPACE nlohmann
#define NLOHMANN_JSON_NAMESPACE_BEGIN namespace nlohmann {
#define NLOHMANN_JSON_NAMESPACE_END }
#include <nlohmann/json.hpp>
#include <string>

static_assert(FMT_VERSION < 120000, "this is to be another fmt than the one libtorch bundles");

std::string own_text(double value) {
  const nlohmann::json parsed = nlohmann::json::parse(R"({"a": [1, 2.5, "x"], "b": {"c": null}})");
  return fmt::format("{:.3f} {} {}", value, parsed["a"].size(), parsed.dump());
}
