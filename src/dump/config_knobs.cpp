// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The rows of the knob table, and how one row's text becomes a value and back.
#include "dump/config_knobs.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"
#include "dump/filter.h"

namespace dbg::dumping {
namespace {

constexpr int kLongestSeconds = 1'000'000;
constexpr int kHighestPort = 65535;
constexpr std::size_t kLongestComponent = 255;  // NAME_MAX

using C = DumperConfig;
using R = KnobRule;

// There before any code runs, and when the process exits.
constexpr KnobRow kRows[] = {
    {"enable", &C::enable, "Master switch. Off costs one load and a branch a call."},
    {"filter", &C::filter, "Which dumps are kept, as an expression over their tags (docs/filter.md). None keeps all.",
     R::filter, "an expression of docs/filter.md"},
    {"dir", &C::dir, "Base folder; records go to `dir/exp_name/`.", R::folder, "a path"},
    {"enable_output_file", &C::enable_output_file, "Write a record per dump."},
    {"enable_output_console", &C::enable_output_console, "Log one line per dump."},
    {"enable_value", &C::enable_value, "`dump()` records the value."},
    {"enable_grad", &C::enable_grad, "`dump()` also records the gradient, once backward has computed it."},
    {"enable_model_value", &C::enable_model_value, "`dump_model()` records parameters."},
    {"enable_model_grad", &C::enable_model_grad, "`dump_model()` records the parameters' gradients."},
    {"exp_name", &C::exp_name, "Name of this run's folder. None: `dump_` and the time, agreed by whoever comes first.",
     R::path_component, "one path component of at most 255 bytes"},
    {"cleanup_previous", &C::cleanup_previous,
     "Before the first write, remove older `dump_*` folders (and `exp_name`'s) that hold records."},
    {"collective_timeout",
     &C::collective_timeout,
     "Seconds after which a collective of the dumper is given up; `dump()` itself makes none.",
     R::any,
     {},
     1,
     kLongestSeconds},
    {"server_port", &C::server_port, "Control server: a port above 0 starts one, `reuse` uses the host's, else off.",
     R::server_port, "a whole number up to 65535, or reuse"},
    {"non_intrusive_mode", &C::non_intrusive_mode, "How much is dumped without calls in the model.", R::one_of,
     "off, core, all"},
    {"include_parallel_rank_in_filename", &C::include_parallel_rank_in_filename,
     "Add pp_rank, tp_rank, cp_rank, ep_rank and etp_rank to file names."},
    {"grafter_enable", &C::grafter_enable, "Put tensors of one run into another while both run."},
    {"grafter_role", &C::grafter_role, "Which side this run is. Needed to graft.", R::one_of, "baseline, target, file"},
    {"grafter_b2t_filter", &C::grafter_b2t_filter, "Dumps that flow baseline to target; this or the other is needed.",
     R::filter, "an expression of docs/filter.md"},
    {"grafter_t2b_filter", &C::grafter_t2b_filter, "Dumps that flow target to baseline; this or the other is needed.",
     R::filter, "an expression of docs/filter.md"},
    {"grafter_master_address", &C::grafter_master_address,
     "Where baseline rank 0 serves the store of both sides. Needed to graft."},
    {"grafter_master_port",
     &C::grafter_master_port,
     "Port of that store. Needed to graft.",
     R::any,
     {},
     -1,
     kHighestPort},
    {"grafter_baseline_world_size",
     &C::grafter_baseline_world_size,
     "Ranks of the baseline. Needed to graft.",
     R::any,
     {},
     -1},
    {"grafter_target_world_size",
     &C::grafter_target_world_size,
     "Ranks of the target. Needed to graft.",
     R::any,
     {},
     -1},
    {"grafter_backend", &C::grafter_backend, "What carries the tensors; `gloo` goes through host memory.", R::one_of,
     "gloo, nccl"},
    {"grafter_group_name", &C::grafter_group_name, "Name of the group over both sides; the same on both."},
    {"grafter_timeout",
     &C::grafter_timeout,
     "Seconds after which a silent peer ends grafting.",
     R::any,
     {},
     1,
     kLongestSeconds},
    {"grafter_transform", &C::grafter_transform, "Name of a registered transform. None: identity by rank."},
    {"grafter_folder", &C::grafter_folder, "For role `file`: the folder of records that the values come from."},
    {"grafter_max_mib",
     &C::grafter_max_mib,
     "Longest payload of one rank that is taken, in MiB.",
     R::any,
     {},
     1,
     1 << 20},
    {"strict", &C::strict, "For tests: faults inside `dump()` throw, instead of being counted and logged."},
    {"checksum", &C::checksum, "Write the CRC of each part into a record. Off writes faster; `torch.load` reads both."},
};

constexpr std::string_view kBlanks = " \t\n\v\f\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool equal_ignoring_case(std::string_view a, std::string_view lower) {
  const auto same = [](char x, char y) { return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y; };
  return std::equal(a.begin(), a.end(), lower.begin(), lower.end(), same);
}

bool parse_bool(std::string_view text, bool& value) {
  for (const std::string_view word : {"true", "1", "yes", "on"}) {
    if (equal_ignoring_case(text, word)) return value = true, true;
  }
  for (const std::string_view word : {"false", "0", "no", "off"}) {
    if (equal_ignoring_case(text, word)) return value = false, true;
  }
  return false;
}

// The whole text is one decimal number that an int holds.
bool parse_int(std::string_view text, int& value) {
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_one_of(std::string_view word, std::string_view list) {
  while (true) {
    const std::size_t comma = list.find(", ");
    if (word == list.substr(0, comma)) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 2);
  }
}

std::string filter_fault(const std::string& text) {
  try {
    Filter::parse(text);
    return {};
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::string text_fault(const KnobRow& row, const std::string& text) {
  switch (row.rule) {
    case KnobRule::any:
      return {};
    case KnobRule::folder:
      if (text.empty()) return "is empty";
      return text.find('\0') == std::string::npos ? std::string() : "holds a NUL";
    case KnobRule::path_component:
      return path_component_fault(text);
    case KnobRule::filter:
      return filter_fault(text);
    case KnobRule::server_port: {
      int port = 0;
      if (text == "reuse" || (parse_int(trimmed(text), port) && port <= kHighestPort)) return {};
      return "is not a port";
    }
    case KnobRule::one_of:
      return is_one_of(text, row.accepted) ? std::string() : "is none of them";
  }
  return {};
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string path_component_fault(std::string_view text) {
  if (text.empty()) return "is empty";
  if (text == "." || text == "..") return "is not the name of a folder of its own";
  if (text.starts_with(".dbg")) return "begins with '.dbg', as dbg's own files do";
  if (text.size() > kLongestComponent) return formatted("is longer than {} bytes", kLongestComponent);
  for (const char c : text) {
    if (c == '/') return "holds a '/'";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "holds a control character";
  }
  return {};
}

std::span<const KnobRow> knob_rows() {
  return kRows;
}

const KnobRow* find_knob_row(std::string_view name) {
  for (const KnobRow& row : knob_rows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string_view type_name(const KnobRow& row) {
  switch (row.member.index()) {
    case 0:
      return "bool";
    case 1:
      return "int";
    case 2:
      return "text";
    default:
      return "text or none";
  }
}

std::string accepted_values(const KnobRow& row) {
  if (!row.accepted.empty()) return std::string(row.accepted);
  switch (row.member.index()) {
    case 0:
      return "true, 1, yes, on, false, 0, no, off";
    case 1:
      if (row.highest == std::numeric_limits<int>::max()) return formatted("a whole number from {}", row.lowest);
      return formatted("a whole number from {} to {}", row.lowest, row.highest);
    default:
      return "any text";
  }
}

std::string variable_name(std::string_view knob) {
  std::string name = "DUMPER_";
  for (const char c : knob) name.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  return name;
}

std::string value_text(const KnobRow& row, const DumperConfig& config) {
  struct Printer {
    const DumperConfig& config;
    std::string operator()(bool DumperConfig::*member) const { return config.*member ? "true" : "false"; }
    std::string operator()(int DumperConfig::*member) const { return std::to_string(config.*member); }
    std::string operator()(std::string DumperConfig::*member) const { return config.*member; }
    std::string operator()(std::optional<std::string> DumperConfig::*member) const {
      return (config.*member).value_or(std::string());
    }
  };
  return std::visit(Printer{config}, row.member);
}

bool assign(const KnobRow& row, std::string_view text, DumperConfig& config) {
  struct Setter {
    const KnobRow& row;
    std::string_view text;
    DumperConfig& config;
    bool operator()(bool DumperConfig::*member) const { return parse_bool(trimmed(text), config.*member); }
    bool operator()(int DumperConfig::*member) const {
      int value = 0;
      if (!parse_int(trimmed(text), value) || value < row.lowest || value > row.highest) return false;
      config.*member = value;
      return true;
    }
    bool operator()(std::string DumperConfig::*member) const { return config.*member = text, true; }
    bool operator()(std::optional<std::string> DumperConfig::*member) const { return config.*member = text, true; }
  };
  return std::visit(Setter{row, text, config}, row.member);
}

void assign_default(const KnobRow& row, DumperConfig& config) {
  const DumperConfig fresh;
  std::visit([&](auto member) { config.*member = fresh.*member; }, row.member);
}

std::string fault_of(const KnobRow& row, const DumperConfig& config) {
  struct Check {
    const KnobRow& row;
    const DumperConfig& config;
    std::string operator()(bool DumperConfig::*) const { return {}; }
    std::string operator()(int DumperConfig::*member) const {
      const int value = config.*member;
      return value < row.lowest || value > row.highest ? "is out of range" : "";
    }
    std::string operator()(std::string DumperConfig::*member) const {
      const std::string& text = config.*member;
      // Empty is how the twin says "not given"; whoever needs the value asks for it.
      if (text.empty() && (DumperConfig().*member).empty()) return {};
      return text_fault(row, text);
    }
    std::string operator()(std::optional<std::string> DumperConfig::*member) const {
      return (config.*member).has_value() ? text_fault(row, *(config.*member)) : std::string();
    }
  };
  return std::visit(Check{row, config}, row.member);
}

std::string_view twin_only_advice(std::string_view knob) {
  if (knob == "source_patcher_config") {
    return "rewrites Python source at run time, which C++ has none of: put dbg::dump(...) where the patch would go";
  }
  if (knob == "grafter_transform_path") {
    return "is the path of a Python function: register the transform in C++ and give its name in grafter_transform "
           "(DUMPER_GRAFTER_TRANSFORM)";
  }
  return {};
}

std::string_view nearest_knob(std::string_view name) {
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;  // farther than that is another word
  for (const KnobRow& row : knob_rows()) {
    const std::size_t distance = edit_distance(name, row.name);
    if (distance < least) {
      least = distance;
      nearest = row.name;
    }
  }
  return nearest;
}

}  // namespace dbg::dumping
