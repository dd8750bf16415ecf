// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a Grafter is told: from the Dumper's knobs, and whether it makes sense.
#include <string_view>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "dbg/error.h"
#include "dbg/grafter.h"
#include "distributed/labels.h"
#include "dump/filter.h"
#include "graft/transforms.h"

namespace dbg {
namespace {

constexpr int kHighestPort = 65535;
// So that sums and products of these fit their types.
constexpr int kMostRanks = 1 << 16;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

bool is_world_size(int size) {
  return size > 0 && size <= kMostRanks;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

// The name of each field as the knob has it: that is where most users set it.
class Faults {
 public:
  void need(bool is_fine, std::string_view knob, std::string_view value, std::string_view what) {
    if (!is_fine) all_.push_back(formatted("{}: got '{}'; it must be {}", knob, value, what));
  }
  void need(bool is_fine, std::string_view knob, std::int64_t value, std::string_view what) {
    need(is_fine, knob, std::to_string(value), what);
  }
  void compile(std::string_view knob, const std::string& text) {
    if (const auto cause = base::run_fenced([&] { Filter::parse(text); })) {
      all_.push_back(formatted("{}: '{}' is not of the language: {}", knob, text, *cause));
    }
  }
  void add(std::string_view fault) { all_.emplace_back(fault); }

  void throw_if_any() const {
    if (all_.empty()) return;
    std::string text =
        formatted("{} fault{} of the Grafter's configuration:", all_.size(), all_.size() == 1 ? "" : "s");
    for (const std::string& fault : all_) text += "\n- " + fault;
    throw ConfigError(text);
  }

 private:
  std::vector<std::string> all_;
};

void check_meeting(const GraftConfig& config, Faults& faults) {
  faults.need(!is_blank(config.master_address), "grafter_master_address", config.master_address,
              "the address of baseline rank 0");
  faults.need(config.master_port >= 1 && config.master_port <= kHighestPort, "grafter_master_port", config.master_port,
              "a port from 1 to 65535");
  faults.need(is_world_size(config.baseline_world_size), "grafter_baseline_world_size", config.baseline_world_size,
              "the baseline's number of ranks, from 1 to 65536");
  faults.need(is_world_size(config.target_world_size), "grafter_target_world_size", config.target_world_size,
              "the target's number of ranks, from 1 to 65536");
  faults.need(config.backend == "gloo", "grafter_backend", config.backend,
              "gloo: this version carries grafts through host memory only, those of device tensors too; set "
              "DUMPER_GRAFTER_BACKEND=gloo on both sides");
  if (const auto cause = base::run_fenced([&] { distributed::checked_group_name(config.group_name); })) {
    faults.add(formatted("grafter_group_name: {}", *cause));
  }
  faults.need(!is_blank(config.group_name), "grafter_group_name", config.group_name, "a name");
}

}  // namespace

const char* to_text(GraftRole role) noexcept {
  switch (role) {
    case GraftRole::baseline:
      return "baseline";
    case GraftRole::target:
      break;
    case GraftRole::file:
      return "file";
  }
  return "target";
}

const char* to_text(GraftDirection direction) noexcept {
  return direction == GraftDirection::b2t ? "b2t" : "t2b";
}

GraftConfig GraftConfig::from(const DumperConfig& config) {
  GraftConfig made;
  if (config.grafter_role == "baseline") {
    made.role = GraftRole::baseline;
  } else if (config.grafter_role == "target") {
    made.role = GraftRole::target;
  } else if (config.grafter_role == "file") {
    made.role = GraftRole::file;
  } else {
    throw ConfigError(formatted("grafter_role: got '{}'; it must be baseline, target or file", config.grafter_role));
  }
  made.b2t_filter = config.grafter_b2t_filter.value_or("");
  made.t2b_filter = config.grafter_t2b_filter.value_or("");
  made.master_address = config.grafter_master_address;
  made.master_port = config.grafter_master_port;
  made.baseline_world_size = config.grafter_baseline_world_size;
  made.target_world_size = config.grafter_target_world_size;
  made.backend = config.grafter_backend;
  made.group_name = config.grafter_group_name;
  made.timeout = std::chrono::seconds(config.grafter_timeout);
  made.transform = config.grafter_transform.value_or("");
  made.max_bytes = static_cast<std::int64_t>(config.grafter_max_mib) << 20;
  made.folder = config.grafter_folder.value_or("");
  made.strict = config.strict;
  return made;
}

void GraftConfig::validate() const {
  Faults faults;
  if (role == GraftRole::file) {
    faults.need(!is_blank(folder), "grafter_folder", folder, "a folder of records");
    faults.need(!is_blank(b2t_filter), "grafter_b2t_filter", b2t_filter,
                "an expression that says which dumps get their values from the folder");
  } else {
    check_meeting(*this, faults);
    if (is_blank(b2t_filter) && is_blank(t2b_filter)) {
      faults.add("neither grafter_b2t_filter nor grafter_t2b_filter is set: nothing would ever be grafted; set one");
    }
  }
  faults.compile("grafter_b2t_filter", b2t_filter);
  faults.compile("grafter_t2b_filter", t2b_filter);
  faults.need(timeout.count() > 0, "grafter_timeout", timeout.count(), "positive (this is in milliseconds)");
  faults.need(max_bytes > 0 && max_bytes <= kMostBytes, "grafter_max_mib", max_bytes,
              "positive and at most 1048576 MiB (this is in bytes)");
  if (const auto cause = base::run_fenced([&] { graft::check_built_in(transform); })) {
    faults.add(formatted("grafter_transform: {}", *cause));
  }
  faults.throw_if_any();
}

}  // namespace dbg
