// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where a Dumper's files go: the experiment's name, its folder, the clean-up of earlier ones.
#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

#include "base/log.h"
#include "dbg/error.h"
#include "dump/cleanup.h"
#include "dump/dumper_impl.h"
#include "dump/file_sink.h"

namespace dbg::detail {
namespace {

constexpr std::string_view kPart = "Dumper";

// Not the program's generator: a debug tool must not change the numbers that a run draws.
std::uint32_t own_random() {
  std::random_device device;
  return device();
}

}  // namespace

// Called under sink_mutex_.
std::string DumperImpl::folder_locked(const Settings& settings) const {
  return fmt::format("{}/{}", settings.config.dir, settings.config.exp_name.value_or(exp_name_));
}

// Called under sink_mutex_. Claims the name once; with a given exp_name only the time, which the clean-up needs.
void DumperImpl::claim_exp_name(const Settings& settings) {
  const bool needs_name = !settings.config.exp_name && exp_name_.empty();
  const bool needs_time = settings.config.cleanup_previous && claimed_ns_ == 0;
  if (!needs_name && !needs_time) return;
  const auto participant = current_participant();
  const std::string proposal =
      settings.config.exp_name.value_or(propose_exp_name(std::chrono::system_clock::now(), own_random()));
  ExpNameClaim claim;
  try {
    if (participant->world_size() > 1) {
      std::string key = launch_key();
      if (settings.config.exp_name) key += "_named";
      claim = FileExpNameBoard(settings.config.dir, std::move(key), participant->rank()).claim(proposal);
      if (needs_name && launch_spans_nodes()) {
        base::log(LogLevel::warning, kPart,
                  "this launch spans several nodes: unless '{}' is one shared folder, each node chooses its own "
                  "exp_name. Set DUMPER_EXP_NAME on all nodes.",
                  settings.config.dir);
      }
    } else {
      claim = LocalExpNameBoard().claim(proposal);
    }
  } catch (const IoError& error) {
    base::log(LogLevel::warning, kPart, "{}; this rank goes on with its own exp_name {}", error.what(), proposal);
    claim = LocalExpNameBoard().claim(proposal);
  }
  if (claimed_ns_ == 0) claimed_ns_ = claim.claimed_ns;
  if (needs_name) {
    exp_name_ = claim.exp_name;
    base::log(LogLevel::info, kPart, "records go to {}/{}", settings.config.dir, exp_name_);
  }
}

void DumperImpl::clean_up(const Settings& settings, ParticipantState& state) {
  if (!settings.config.cleanup_previous || current_participant()->rank() != 0 || !state.take_cleanup_turn()) return;
  std::string exp_name;
  std::int64_t claimed_ns = 0;
  {
    const std::lock_guard lock(sink_mutex_);
    exp_name = settings.config.exp_name.value_or(exp_name_);
    claimed_ns = claimed_ns_;
  }
  try {
    const CleanupReport report = clean_up_previous(settings.config.dir, exp_name, claimed_ns);
    if (report.records_removed > 0) {
      base::log(LogLevel::info, kPart, "cleanup_previous removed {} records of earlier runs ({} folders) from {}",
                report.records_removed, report.removed.size(), settings.config.dir);
    }
    for (const std::string& kept : report.kept) {
      base::log(LogLevel::warning, kPart, "cleanup_previous left a folder alone: {}; remove it by hand", kept);
    }
  } catch (const Error& error) {
    base::log(LogLevel::warning, kPart, "cleanup_previous: {}", error.what());
  }
}

std::shared_ptr<RecordSink> DumperImpl::file_sink(const Settings& settings, ParticipantState& state) {
  std::shared_ptr<RecordSink> sink;
  {
    const std::lock_guard lock(sink_mutex_);
    claim_exp_name(settings);
    std::string folder = folder_locked(settings);
    if (!sink_ || folder != sink_folder_ || sink_checksum_ != settings.config.checksum) {
      sink_ = std::make_shared<FileSink>(folder, settings.config.checksum);
      sink_folder_ = std::move(folder);
      sink_checksum_ = settings.config.checksum;
    }
    sink = sink_;
  }
  clean_up(settings, state);
  return sink;
}

}  // namespace dbg::detail
