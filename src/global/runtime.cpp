// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes the process's own Dumper at its first use.
#include "dbg/runtime.h"

#include "base/log.h"
#include "dbg/error.h"

namespace dbg {

namespace detail {
std::atomic<unsigned char> global_enabled{2};
}  // namespace detail

namespace {

DumperConfig config_or_off() {
  try {
    return DumperConfig::from_env();
  } catch (const ConfigError& error) {
    base::log(LogLevel::error, "Dumper", "DUMPING IS OFF: {}", error.what());
    return DumperConfig();
  }
}

}  // namespace

Dumper& Dumper::global() {
  // Leaked on purpose: threads may dump while the process exits.
  static Dumper* dumper = new Dumper(config_or_off(), &detail::global_enabled);
  return *dumper;
}

}  // namespace dbg
