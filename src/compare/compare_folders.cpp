// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Two folders: lists, pairs, compares all pairs, and finds where they part.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "base/formatted.h"
#include "compare/bounded_workers.h"
#include "compare/divergence.h"
#include "compare/pair_compare.h"
#include "compare/record_folder.h"
#include "compare/rules.h"
#include "dbg/compare.h"
#include "dbg/error.h"
#include "dump/record_pairing.h"

namespace dbg {
namespace {

using compare::PairJob;
using compare::RecordFile;
using compare::RecordFolder;

std::vector<RecordDescriptor> descriptors_of(const RecordFolder& folder) {
  std::vector<RecordDescriptor> descriptors;
  descriptors.reserve(folder.records.size());
  for (const RecordFile& record : folder.records) descriptors.push_back(record.descriptor);
  return descriptors;
}

std::vector<const RecordFile*> files_of(const RecordFolder& folder, const RecordBundle& bundle) {
  std::vector<const RecordFile*> files;
  for (const std::size_t at : bundle) files.push_back(&folder.records[at]);
  return files;
}

std::uint64_t bytes_of(const std::vector<const RecordFile*>& files) {
  std::uint64_t bytes = 0;
  for (const RecordFile* file : files) {
    std::error_code ignored;
    const std::uintmax_t size = std::filesystem::file_size(file->path, ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

class Comparison {
 public:
  explicit Comparison(const CompareOptions& options) : options_(options) {
    if (!(options.noise_factor > 0) || !std::isfinite(options.noise_factor)) {
      throw ConfigError(formatted("noise factor {}: expected a number above 0", options.noise_factor));
    }
    for (const std::string& rule : options.rules) rules_.add_tolerance(rule);
    if (!options.rules_file.empty()) rules_.add_file(options.rules_file);
    pairing_.ignored_tags = options.ignored_tags;
    pairing_.ignored_tags.insert(pairing_.ignored_tags.end(), rules_.ignored_tags().begin(),
                                 rules_.ignored_tags().end());
    pairing_.step_offset = options.step_offset;
    for (const auto* maps : {&options.name_maps, &rules_.name_maps()}) {
      for (const std::string& map : *maps) pairing_.name_rules.push_back(NameRule::parse(map));
    }
    const Filter where = Filter::parse(options.where);
    baseline_ = open(options.baseline, "baseline", where);
    target_ = open(options.target, "target", where);
    if (!options.noise.empty()) noise_ = open(options.noise, "noise", where);
  }

  CompareReport run() {
    const auto started = std::chrono::steady_clock::now();
    report_.baseline = baseline_.path;
    report_.target = target_.path;
    report_.noise = noise_.path;
    report_.baseline_records = baseline_.records.size();
    report_.target_records = target_.records.size();
    report_.unpaired_fails = options_.unpaired_fails;
    const std::vector<PairJob> jobs = pair();
    compare_all(jobs);
    compare::follow_error(report_);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return std::move(report_);
  }

 private:
  RecordFolder open(const std::string& path, const char* what, const Filter& where) {
    RecordFolder folder = compare::open_folder(path, what, where);
    if (!folder.note.empty()) report_.notes.push_back(folder.note);
    return folder;
  }

  std::vector<PairJob> pair() {
    const std::vector<RecordDescriptor> baseline = descriptors_of(baseline_);
    const Pairing pairing = pair_records(baseline, descriptors_of(target_), pairing_);
    std::map<std::size_t, const RecordBundle*> noise_of;  // by the first record of the baseline's bundle
    Pairing with_noise;
    if (!noise_.records.empty()) {
      PairingOptions plain;
      plain.ignored_tags = pairing_.ignored_tags;
      with_noise = pair_records(baseline, descriptors_of(noise_), plain);
      for (const RecordPair& pair : with_noise.pairs) noise_of.emplace(pair.baseline.front(), &pair.target);
    }
    std::vector<PairJob> jobs;
    std::size_t without_noise = 0;
    for (const RecordPair& pair : pairing.pairs) {
      PairJob job{files_of(baseline_, pair.baseline), files_of(target_, pair.target), {}};
      const auto noise = noise_of.find(pair.baseline.front());
      if (noise != noise_of.end()) job.noise = files_of(noise_, *noise->second);
      without_noise += !noise_.records.empty() && noise == noise_of.end();
      jobs.push_back(std::move(job));
    }
    if (without_noise > 0) {
      report_.notes.push_back(
          formatted("{} of {} pairs have no partner in the noise folder; they are held against "
                    "their rule or their dtype's tolerance",
                    without_noise, jobs.size()));
    }
    report_unpaired("baseline", baseline_, pairing.baseline_only);
    report_unpaired("target", target_, pairing.target_only);
    return jobs;
  }

  void report_unpaired(const char* side, const RecordFolder& folder, const std::vector<UnpairedBundle>& bundles) {
    for (const UnpairedBundle& bundle : bundles) {
      const RecordDescriptor& first = folder.records[bundle.records.front()].descriptor;
      UnpairedReport one{side,          first.name,         compare::tags_text(first.tags), first.step, {},
                         bundle.reason, bundle.nearest_name};
      for (const std::size_t at : bundle.records) one.ranks.push_back(folder.records[at].descriptor.rank);
      report_.unpaired.push_back(std::move(one));
    }
  }

  void compare_all(const std::vector<PairJob>& jobs) {
    std::atomic<std::size_t> pictures{0};
    const compare::SequenceLengths baseline_lengths(baseline_.length_records);
    const compare::SequenceLengths target_lengths(target_.length_records);
    const compare::SequenceLengths noise_lengths(noise_.length_records);
    compare::PairContext context{rules_};
    context.baseline_lengths = &baseline_lengths;
    context.target_lengths = &target_lengths;
    context.noise_lengths = &noise_lengths;
    context.noise_factor = options_.noise_factor;
    context.max_pictures = options_.max_pictures;
    if (options_.max_pictures > 0) context.pictures = &pictures;
    std::vector<compare::PairOutcome> outcomes(jobs.size());
    compare::WorkLimits limits;
    limits.threads = options_.threads > 0 ? options_.threads : std::max(std::thread::hardware_concurrency(), 1u);
    const auto bytes = [&](std::size_t at) {
      std::uint64_t all = 0;
      for (const auto* files : {&jobs[at].baseline, &jobs[at].target, &jobs[at].noise}) {
        const std::uint64_t size = bytes_of(*files);
        // A lone record that is read in pieces takes no more than a few of them.
        all += files->size() == 1 ? std::min(size, 2 * context.windowed_above_bytes) : size;
      }
      return all;
    };
    std::function<void(std::size_t)> done;
    if (options_.on_progress) {
      options_.on_progress(0, jobs.size());
      done = [&](std::size_t finished) { options_.on_progress(finished, jobs.size()); };
    }
    compare::run_bounded(
        jobs.size(), limits, bytes, [&](std::size_t at) { outcomes[at] = compare::compare_pair(jobs[at], context); },
        done);
    for (compare::PairOutcome& outcome : outcomes) {
      std::move(outcome.reports.begin(), outcome.reports.end(), std::back_inserter(report_.pairs));
      std::move(outcome.unreadable.begin(), outcome.unreadable.end(), std::back_inserter(report_.unreadable));
    }
  }

  const CompareOptions& options_;
  compare::Rules rules_;
  PairingOptions pairing_;
  RecordFolder baseline_;
  RecordFolder target_;
  RecordFolder noise_;
  CompareReport report_;
};

}  // namespace

const char* to_text(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::same_bits:
      return "same bits";
    case Verdict::passed:
      return "passed";
    case Verdict::failed:
      return "failed";
    case Verdict::skipped:
      break;
  }
  return "skipped";
}

std::size_t CompareReport::count(Verdict verdict) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(pairs.begin(), pairs.end(), [verdict](const PairReport& pair) { return pair.verdict == verdict; }));
}

int CompareReport::exit_code() const noexcept {
  const bool has_fault = std::any_of(pairs.begin(), pairs.end(), [](const PairReport& pair) { return pair.is_fault; });
  if (pairs.empty() || !unreadable.empty() || has_fault) return 2;
  return count(Verdict::failed) > 0 || (unpaired_fails && !unpaired.empty()) ? 1 : 0;
}

CompareReport compare_folders(const CompareOptions& options) {
  return Comparison(options).run();
}

}  // namespace dbg
