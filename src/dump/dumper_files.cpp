// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where a Dumper's files go: the experiment's name, its folder, the clean-up of earlier ones.
#include <chrono>
#include <random>
#include <utility>

#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dump/cleanup.h"
#include "dump/dumper_impl.h"
#include "dump/file_sink.h"
#include "dump/part_name.h"

namespace dbg::detail {
namespace {

// Once a launch, for a look into the folders of earlier runs, which may be many and large.
constexpr std::chrono::milliseconds kLeftoversPatience{50};

// Not the program's generator: a debug tool must not change the numbers that a run draws.
std::string new_proposal() {
  std::random_device device;
  return propose_exp_name(std::chrono::system_clock::now(), device());
}

}  // namespace

// Called under sink_mutex_.
std::string DumperImpl::folder_locked(const Settings& settings) const {
  return formatted("{}/{}", settings.config.dir, settings.config.exp_name.value_or(exp_name_));
}

// Called under sink_mutex_. Claims the name once; with a given exp_name only the time, which the clean-up needs.
void DumperImpl::claim_exp_name(const Settings& settings, FileNotes& notes) {
  const bool needs_name = !settings.config.exp_name && exp_name_.empty();
  // From the first file on: what this run wrote before the clean-up was asked for is not older than the claim.
  const bool needs_time = claimed_ns_ == 0;
  if (!needs_name && !needs_time) return;
  const auto participant = current_participant();
  const bool needs_peers = participant->world_size() > 1 && (needs_name || settings.config.cleanup_previous);
  const bool is_agreed = needs_name && !agreed_exp_name_.empty();
  const std::string proposal = is_agreed ? agreed_exp_name_ : settings.config.exp_name.value_or(new_proposal());
  if (needs_name && !is_agreed && !why_not_agreed_.empty()) {
    notes.lines.emplace_back(LogLevel::warning, formatted("{} Only ranks that share '{}' have one exp_name now.",
                                                          why_not_agreed_, settings.config.dir));
  }
  ExpNameClaim claim;
  try {
    if (needs_peers) {
      std::string key = launch_key();
      if (settings.config.exp_name) key += "_named";
      // Also with an agreed name: it says since when, and tells it to ranks of this folder that could not learn it.
      claim = FileExpNameBoard(settings.config.dir, std::move(key), participant->rank()).claim(proposal);
      if (needs_name && !is_agreed && why_not_agreed_.empty() && launch_spans_nodes()) {
        notes.lines.emplace_back(
            LogLevel::warning,
            formatted(
                "this launch spans several nodes: unless '{}' is one shared folder, each node chooses its own "
                "exp_name. Set DUMPER_EXP_NAME on all nodes, or attach() the run's World before the first record.",
                settings.config.dir));
      }
    } else {
      claim = LocalExpNameBoard().claim(proposal);
    }
  } catch (const IoError& error) {
    notes.lines.emplace_back(LogLevel::warning, formatted("{}; this rank goes on with {} exp_name {}", error.what(),
                                                          is_agreed ? "the attached world's" : "its own", proposal));
    claim = LocalExpNameBoard().claim(proposal);
  }
  if (is_agreed) claim.exp_name = agreed_exp_name_;  // the file's may be of a rank that could not learn this one
  if (needs_time) claimed_ns_ = claim.claimed_ns;
  if (needs_name) {
    exp_name_ = claim.exp_name;
    notes.is_first_of_launch = claim.is_first;
    notes.lines.emplace_back(LogLevel::info, formatted("records go to {}/{}", settings.config.dir, exp_name_));
  }
}

void DumperImpl::agree_on_exp_name(ExpNameBoard& board) {
  if (refuse_in_forked_child()) return;
  std::string in_use;
  {
    const std::lock_guard lock(sink_mutex_);
    in_use = exp_name_;
  }
  std::string agreed;
  std::string fault;
  try {
    agreed = board.claim(in_use.empty() ? new_proposal() : in_use).exp_name;
  } catch (const Error& error) {
    fault = error.what();
  }
  {
    const std::lock_guard lock(sink_mutex_);
    in_use = exp_name_;  // a record may have come meanwhile
    if (in_use.empty()) {
      if (!agreed.empty()) {
        agreed_exp_name_ = agreed;
        why_not_agreed_.clear();
      } else if (agreed_exp_name_.empty()) {
        why_not_agreed_ = fault;  // said when a record needs the name, which may be never
      }
      return;
    }
  }
  if (!fault.empty()) {
    base::log(LogLevel::warning, kPart, "{} Records of this process go on to exp_name {}.", fault, in_use);
  } else if (agreed != in_use) {
    base::log(
        LogLevel::warning, kPart,
        "attached after the first record: records of this process stay in exp_name {}, those of the launch are in "
        "{}. Attach before the first record, or set DUMPER_EXP_NAME on all nodes.",
        in_use, agreed);
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
  FileNotes notes;
  {
    const std::lock_guard lock(sink_mutex_);
    claim_exp_name(settings, notes);
    std::string folder = folder_locked(settings);
    if (!sink_ || folder != sink_folder_ || sink_checksum_ != settings.config.checksum) {
      sink_ = std::make_shared<FileSink>(folder, settings.config.checksum);
      sink_folder_ = std::move(folder);
      sink_checksum_ = settings.config.checksum;
    }
    sink = sink_;
  }
  for (const auto& [level, line] : notes.lines) base::log_text(level, kPart, line);
  // The sink has done so in this run's own folder; earlier runs had others.
  if (notes.is_first_of_launch) remove_leftovers(settings.config.dir, kLeftoversPatience);
  clean_up(settings, state);
  return sink;
}

}  // namespace dbg::detail
