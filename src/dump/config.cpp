// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where a DumperConfig comes from (environment, key=value texts), and the checks on the whole of it.
#include "dbg/config.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dump/config_knobs.h"

extern char** environ;

namespace dbg {
namespace {

using dumping::KnobRow;

constexpr std::string_view kPrefix = "DUMPER_";
constexpr std::size_t kLongestShownValue = 200;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

// A value as messages show it: in quotes, on one line, not endless.
std::string in_quotes(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, kLongestShownValue)) {
    shown.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  shown += text.size() > kLongestShownValue ? "...'" : "'";
  return shown;
}

// How a message names a knob: by its variable when the value came from the environment, else by its key.
std::string shown_name(const KnobRow& row, bool by_variable) {
  return by_variable ? dumping::variable_name(row.name) : std::string(row.name);
}

std::string wrong_type(const KnobRow& row, std::string_view text, bool by_variable) {
  return formatted("{}: expected {}, got {}; accepted: {}", shown_name(row, by_variable), dumping::type_name(row),
                   in_quotes(text), dumping::accepted_values(row));
}

[[noreturn]] void throw_faults(const std::vector<std::string>& faults, std::string_view where) {
  if (faults.size() == 1) throw ConfigError(faults.front());
  std::string text = formatted("{} settings {} are not usable:", faults.size(), where);
  for (const std::string& fault : faults) text += "\n- " + fault;
  throw ConfigError(text);
}

using Names = std::vector<std::string_view>;

bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What grafting needs and no single knob can know. `skipped`: knobs whose fault is known already.
void append_grafter_faults(const DumperConfig& config, bool by_variable, const Names& skipped,
                           std::vector<std::string>& faults) {
  if (!config.grafter_enable) return;
  const auto name = [&](std::string_view knob) {
    return by_variable ? dumping::variable_name(knob) : std::string(knob);
  };
  const auto need = [&](bool there, std::string_view knob, std::string_view value, std::string_view what) {
    if (there || contains(skipped, knob)) return;
    faults.push_back(
        formatted("{}: must be {} when {} is on, got {}", name(knob), what, name("grafter_enable"), in_quotes(value)));
  };
  const auto given = [](const std::optional<std::string>& text) { return text && !is_blank(*text); };
  need(!config.grafter_role.empty(), "grafter_role", config.grafter_role, "baseline, target or file");
  if (config.grafter_role == "file") {
    need(given(config.grafter_folder), "grafter_folder", config.grafter_folder.value_or(""), "a folder of records");
    need(given(config.grafter_b2t_filter), "grafter_b2t_filter", config.grafter_b2t_filter.value_or(""),
         "an expression that says which dumps get their values from the folder");
    return;
  }
  need(!is_blank(config.grafter_master_address), "grafter_master_address", config.grafter_master_address,
       "the address of baseline rank 0");
  need(config.grafter_master_port > 0, "grafter_master_port", std::to_string(config.grafter_master_port),
       "a port from 1 to 65535");
  need(config.grafter_baseline_world_size > 0, "grafter_baseline_world_size",
       std::to_string(config.grafter_baseline_world_size), "the baseline's number of ranks, from 1");
  need(config.grafter_target_world_size > 0, "grafter_target_world_size",
       std::to_string(config.grafter_target_world_size), "the target's number of ranks, from 1");
  need(!is_blank(config.grafter_group_name), "grafter_group_name", config.grafter_group_name, "a name");
  if (!given(config.grafter_b2t_filter) && !given(config.grafter_t2b_filter)) {
    faults.push_back(formatted("{} is on, but neither {} nor {} is set: nothing would ever be grafted; set one",
                               name("grafter_enable"), name("grafter_b2t_filter"), name("grafter_t2b_filter")));
  }
}

void append_faults(const DumperConfig& config, bool by_variable, const Names& skipped,
                   std::vector<std::string>& faults) {
  for (const KnobRow& row : dumping::knob_rows()) {
    if (contains(skipped, row.name)) continue;
    const std::string fault = dumping::fault_of(row, config);
    if (fault.empty()) continue;
    const std::string shown = shown_name(row, by_variable);
    const std::string value = in_quotes(dumping::value_text(row, config));
    if (row.rule == dumping::KnobRule::filter) {
      // The fault brings the expression and a caret below it; nothing may follow on its last line.
      faults.push_back(formatted("{}={} (accepted: {}): {}", shown, value, dumping::accepted_values(row), fault));
    } else {
      faults.push_back(
          formatted("{}: got {}, which {}; accepted: {}", shown, value, fault, dumping::accepted_values(row)));
    }
  }
  append_grafter_faults(config, by_variable, skipped, faults);
}

void warn_of_twin_only(std::string_view shown, std::string_view knob) {
  base::log(LogLevel::warning, "Dumper", "{} is ignored: it {}.", shown, dumping::twin_only_advice(knob));
}

std::string valid_keys() {
  std::vector<std::string_view> names;
  for (const KnobRow& row : dumping::knob_rows()) names.push_back(row.name);
  std::sort(names.begin(), names.end());
  return formatted("{}", fmt::join(names, ", "));
}

void warn_of_unknown_variables() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    if (line.substr(0, kPrefix.size()) != kPrefix) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || is_blank(line.substr(equals + 1))) continue;
    const std::string variable(line.substr(0, equals));
    std::string knob = variable.substr(kPrefix.size());
    for (char& c : knob) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool known = dumping::find_knob_row(knob) != nullptr && dumping::variable_name(knob) == variable;
    if (known) continue;
    if (!dumping::twin_only_advice(knob).empty()) {
      warn_of_twin_only(variable, knob);
      continue;
    }
    const std::string_view nearest = dumping::nearest_knob(knob);
    unknown.push_back(nearest.empty() ? variable
                                      : formatted("{} (did you mean {}?)", variable, dumping::variable_name(nearest)));
  }
  if (unknown.empty()) return;
  base::log(LogLevel::warning, "Dumper", "The environment has variables that are no settings of dbg: {}.",
            fmt::join(unknown, ", "));
}

struct Pair {
  std::string_view key;
  std::string_view value;
};

// Sets `config` from the pairs whose key passes `wanted`; the others are checked all the same.
template <class Wanted>
void apply(const std::vector<std::string>& pairs, DumperConfig& config, Wanted&& wanted) {
  std::vector<std::string> faults;
  for (const std::string& pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos) {
      faults.push_back(formatted("{} has no '=': give settings as key=value", in_quotes(pair)));
      continue;
    }
    const std::string_view key = std::string_view(pair).substr(0, equals);
    const std::string_view value = std::string_view(pair).substr(equals + 1);
    const KnobRow* const row = dumping::find_knob_row(key);
    if (row == nullptr) {
      if (!dumping::twin_only_advice(key).empty()) {
        if (!is_blank(value)) warn_of_twin_only(key, key);
        continue;
      }
      const std::string_view nearest = dumping::nearest_knob(key);
      faults.push_back(formatted("unknown key {}{}; valid keys: {}", in_quotes(key),
                                 nearest.empty() ? "" : formatted(", did you mean {}?", nearest), valid_keys()));
      continue;
    }
    DumperConfig scratch;
    DumperConfig& target = wanted(*row) ? config : scratch;
    if (is_blank(value)) {
      dumping::assign_default(*row, target);
    } else if (!dumping::assign(*row, value, target)) {
      faults.push_back(wrong_type(*row, value, /*by_variable=*/false));
    }
  }
  if (!faults.empty()) throw_faults(faults, "given as key=value");
}

bool is_set_in_environment(const KnobRow& row) {
  const char* const value = std::getenv(dumping::variable_name(row.name).c_str());
  return value != nullptr && !is_blank(value);
}

}  // namespace

std::string default_dump_dir() {
  const char* const given = std::getenv("TMPDIR");
  std::string folder = given != nullptr && *given != '\0' ? given : "/tmp";
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (folder.back() != '/') folder.push_back('/');
  return folder + "dumper_" + std::to_string(::geteuid());
}

DumperConfig DumperConfig::from_env() {
  DumperConfig config;
  std::vector<std::string> faults;
  Names unreadable;
  for (const KnobRow& row : dumping::knob_rows()) {
    const char* const value = std::getenv(dumping::variable_name(row.name).c_str());
    if (value == nullptr || is_blank(value)) continue;
    if (!dumping::assign(row, value, config)) {
      faults.push_back(wrong_type(row, value, /*by_variable=*/true));
      unreadable.push_back(row.name);
    }
  }
  append_faults(config, /*by_variable=*/true, unreadable, faults);
  warn_of_unknown_variables();
  if (!faults.empty()) throw_faults(faults, "in the environment");
  return config;
}

DumperConfig DumperConfig::from_key_values(const std::vector<std::string>& pairs) {
  return DumperConfig().with_overrides(pairs);
}

DumperConfig DumperConfig::with_overrides(const std::vector<std::string>& pairs) const {
  DumperConfig config = *this;
  apply(pairs, config, [](const KnobRow&) { return true; });
  return config;
}

DumperConfig DumperConfig::with_defaults(const std::vector<std::string>& pairs) const {
  DumperConfig config = *this;
  apply(pairs, config, [](const KnobRow& row) { return !is_set_in_environment(row); });
  return config;
}

void DumperConfig::validate() const {
  std::vector<std::string> faults;
  append_faults(*this, /*by_variable=*/false, {}, faults);
  if (!faults.empty()) throw_faults(faults, "of the configuration");
}

std::vector<std::string> DumperConfig::to_key_values() const {
  std::vector<std::string> pairs;
  for (const KnobRow& row : dumping::knob_rows()) {
    pairs.push_back(formatted("{}={}", row.name, dumping::value_text(row, *this)));
  }
  return pairs;
}

std::vector<std::string> DumperConfig::unavailable_parts() const {
  std::vector<std::string> parts;
  if (server_port == "reuse" || std::atoi(server_port.c_str()) > 0) {
    parts.push_back(formatted("server_port={}: this version has no control server", server_port));
  }
  if (non_intrusive_mode == "all") {
    parts.push_back("non_intrusive_mode=all: this version dumps only where the code calls it");
  }
  return parts;
}

bool operator==(const DumperConfig& a, const DumperConfig& b) {
  return std::all_of(dumping::knob_rows().begin(), dumping::knob_rows().end(), [&](const KnobRow& row) {
    return std::visit([&](auto member) { return a.*member == b.*member; }, row.member);
  });
}

std::vector<ConfigKnob> config_knobs() {
  std::vector<ConfigKnob> knobs;
  const DumperConfig fresh;
  for (const KnobRow& row : dumping::knob_rows()) {
    ConfigKnob knob;
    knob.name = row.name;
    knob.variable = dumping::variable_name(row.name);
    knob.type = dumping::type_name(row);
    knob.default_text = row.name == "dir" ? "<temporary folder>/dumper_<user id>" : dumping::value_text(row, fresh);
    if (knob.default_text.empty()) knob.default_text = "none";
    knob.accepted = dumping::accepted_values(row);
    knob.help = row.help;
    knobs.push_back(std::move(knob));
  }
  return knobs;
}

}  // namespace dbg
