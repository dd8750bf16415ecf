// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The settings of the Dumper (and of the Grafter that hangs on it): fields, where they come from, what is accepted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// `<temporary folder>/dumper_<user id>`: the temporary folder is `TMPDIR`, else `/tmp`. It carries the user id,
/// because a folder shared by all users belongs to whoever came first.
DBG_API std::string default_dump_dir();

/// Everything a Dumper can be told. Each field is the knob of the same name; its environment variable is `DUMPER_` and
/// the name in upper case. What each knob means stands once, in `config_knobs()` and in the README's table made of it.
/// Source: the Python twin's DumperConfig (SGLang 0.5.14), whose names and meanings are kept.
struct DBG_API DumperConfig {
  // --- What is recorded, and where to ---
  bool enable = false;
  std::optional<std::string> filter;
  std::string dir = default_dump_dir();
  bool enable_output_file = true;
  bool enable_output_console = true;
  bool enable_value = true;
  bool enable_grad = false;
  bool enable_model_value = false;
  bool enable_model_grad = false;
  std::optional<std::string> exp_name;
  bool cleanup_previous = false;
  int collective_timeout = 60;  // seconds
  std::string server_port = "-1";
  std::string non_intrusive_mode = "core";
  bool include_parallel_rank_in_filename = false;

  // --- Grafter ---
  bool grafter_enable = false;
  std::string grafter_role;
  std::optional<std::string> grafter_b2t_filter;
  std::optional<std::string> grafter_t2b_filter;
  std::string grafter_master_address;
  int grafter_master_port = -1;
  int grafter_baseline_world_size = -1;
  int grafter_target_world_size = -1;
  std::string grafter_backend = "gloo";
  std::string grafter_group_name = "graft";
  int grafter_timeout = 300;  // seconds
  std::optional<std::string> grafter_transform;
  std::optional<std::string> grafter_folder;
  int grafter_max_mib = 4096;

  // --- Not in the Python twin ---
  bool strict = false;
  bool checksum = true;

  /// Reads the `DUMPER_*` variables. Unset or blank is the default; a variable that no knob has is warned of, with the
  /// nearest name that one has. The result is validated.
  /// Threads: no other thread may change the environment meanwhile.
  /// Throws: one ConfigError that names every wrong variable, its value, and what is accepted.
  static DumperConfig from_env();

  /// Reads `key=value` texts, split at the first `=`, over the defaults; a blank value is the default. Of two values
  /// for one key the later one counts. The result is not yet validated. Throws: ConfigError on a missing `=`, an
  /// unknown key (with the valid ones and the nearest), a value of another type.
  static DumperConfig from_key_values(const std::vector<std::string>& pairs);

  /// This configuration with the given `key=value` texts in place of what it has; otherwise as `from_key_values`.
  DumperConfig with_overrides(const std::vector<std::string>& pairs) const;

  /// As `with_overrides`, but a pair is taken only where the knob's environment variable is unset or blank: a program's
  /// own defaults lose to what its user says.
  DumperConfig with_defaults(const std::vector<std::string>& pairs) const;

  /// Checks everything that can be checked before use: values within bounds, filters compile, what the Grafter needs.
  /// Throws: one ConfigError with every fault and the offending values.
  void validate() const;

  /// The knobs as `key=value`, in the table's order; `from_key_values` reads them back.
  std::vector<std::string> to_key_values() const;

  /// What this configuration asks for and this version of dbg does not have yet, one sentence each, naming the knob.
  /// Whoever uses the configuration says so in one warning and goes on without.
  std::vector<std::string> unavailable_parts() const;
};

DBG_API bool operator==(const DumperConfig& a, const DumperConfig& b);
inline bool operator!=(const DumperConfig& a, const DumperConfig& b) {
  return !(a == b);
}

/// One knob, as the table declares it.
struct ConfigKnob {
  std::string_view name;     ///< the field and key: `enable_grad`
  std::string variable;      ///< `DUMPER_ENABLE_GRAD`
  std::string_view type;     ///< `bool`, `int`, `text`, `text or none`
  std::string default_text;  ///< as the README shows it: `true`, `60`, `none`
  std::string accepted;      ///< what it may be, in words
  std::string_view help;     ///< what it does
};

/// All knobs, in the order of DumperConfig's fields.
DBG_API std::vector<ConfigKnob> config_knobs();

}  // namespace dbg
