// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Finds the records that stand for a dump of the run.
#include "graft/offline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/fork_lock.h"
#include "base/formatted.h"
#include "base/log.h"
#include "codec/read_limits.h"
#include "dbg/dump_record.h"
#include "dbg/error.h"
#include "dump/dump_record.h"
#include "dump/record_pairing.h"
#include "graft/part_name.h"
#include "graft/place.h"
#include "graft/value_text.h"

namespace dbg::graft {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamed = 5;

struct Record {
  std::string path;
  RecordDescriptor descriptor;
  bool is_used = false;
};

// Places of one participant's run, so that its n-th dump of a kind gets the n-th record.
struct Progress {
  std::int64_t step = 0;
  std::map<std::string, std::uint64_t> seen;  // of this step, by name and counted tags
};

std::string folder_with_records(const std::string& folder) {
  if (!list_records(folder).empty()) return folder;
  std::vector<std::string> inner;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    const std::string path = entry->path().string();
    static_cast<void>(base::run_fenced([&] {
      if (!list_records(path).empty()) inner.push_back(path);
    }));
  }
  std::sort(inner.begin(), inner.end());
  if (inner.size() == 1) return inner.front();
  if (inner.empty()) {
    throw ConfigError(
        formatted("grafter_folder: '{}' holds no records (files such as "
                  "'step=0___rank=0___dump_index=1___name=x.pt'), and neither does a folder in it",
                  folder));
  }
  throw ConfigError(formatted("grafter_folder: '{}' holds no records, and {} folders in it do; name one of them: {}",
                              folder, inner.size(), fmt::join(inner, ", ")));
}

// Which rank of an axis, which the record's rank says already.
std::vector<std::string> make_place_tags() {
  return PairingOptions().bundle_tags;
}

bool is_place_tag(const std::string& key) {
  const auto& tags = base::made_once<&make_place_tags>();
  return std::find(tags.begin(), tags.end(), key) != tags.end();
}

Contribution read(const Record& record, std::int64_t max_bytes) {
  Contribution made;
  const auto cause = base::run_fenced([&] {
    codec::ReadLimits limits;
    limits.max_tensor_bytes = static_cast<std::uint64_t>(max_bytes);
    std::vector<std::string> left_out;
    const DumpRecord read = dumping::read_record_within(record.path, limits, &left_out);
    made.place = place_in(read.meta);
    if (!read.value.isTensor()) {
      made.reason = formatted("record '{}' holds a value of type {}", record.path, read.value.tagKind());
      return;
    }
    made.tensor = dense_on_host(read.value.toTensor());
    made.state = ContributionState::value;
  });
  if (cause) {
    made.state = ContributionState::refused;
    made.reason = *cause;
  }
  return made;
}

}  // namespace

struct OfflineSource::State {
  std::string folder;
  std::set<std::string> tag_names;  // of all records
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::size_t>> by_name_and_step;
  std::mutex mutex;
  std::vector<Record> records;       // `is_used` under mutex
  std::map<int, Progress> progress;  // under mutex
  std::set<std::string> used_tags;   // under mutex; of tag_names, those that the run's dumps had
  bool is_reported = false;          // under mutex

  // Of each rank that has such records, in rank order, its records by dump_index.
  std::map<int, std::vector<std::size_t>> candidates(const std::string& name, const OfflineRequest& request) const {
    std::map<int, std::vector<std::size_t>> exact;
    std::map<int, std::vector<std::size_t>> with_more_tags;
    const auto found = by_name_and_step.find({name, request.step});
    if (found == by_name_and_step.end()) return exact;
    for (const std::size_t index : found->second) {
      const RecordDescriptor& record = records[index].descriptor;
      if (!matches(record, request.tags)) continue;
      switch (surplus(record, request.tags)) {
        case Surplus::none:
          exact[record.rank].push_back(index);
          break;
        case Surplus::unknown:
          with_more_tags[record.rank].push_back(index);
          break;
        case Surplus::used:
          break;
      }
    }
    return exact.empty() ? with_more_tags : exact;
  }

  // Tags that a record has and a dump has not: of keys that the run has used elsewhere, or never yet.
  enum class Surplus { none, unknown, used };

  Surplus surplus(const RecordDescriptor& record, const Tags& tags) const {
    Surplus found = Surplus::none;
    for (const auto& [key, value] : record.tags) {
      if (!counts(key) || tags.find(key) != nullptr) continue;
      if (used_tags.count(key) != 0) return Surplus::used;
      found = Surplus::unknown;
    }
    return found;
  }

  // A tag counts when the folder knows it.
  bool counts(const std::string& key) const { return key != "name" && !is_place_tag(key) && tag_names.count(key) != 0; }

  bool matches(const RecordDescriptor& record, const Tags& tags) const {
    for (const auto& [key, value] : tags) {
      if (!counts(key)) continue;
      const TagValue* has = record.tags.find(key);
      if (has == nullptr || python_text(has->view()) != python_text(value.view())) return false;
    }
    return true;
  }

  // How many such dumps of this rank came before. Under mutex.
  std::uint64_t next_occurrence(const std::string& name, const OfflineRequest& request) {
    std::string kind = name;
    for (const auto& [key, value] : request.tags) {
      if (counts(key)) kind += formatted("\n{}={}", key, python_text(value.view()));
    }
    for (const auto& [key, value] : request.tags) {
      if (counts(key)) used_tags.insert(key);
    }
    Progress& own = progress[request.rank];
    if (own.step != request.step) own = {request.step, {}};
    return own.seen[kind]++;
  }
};

OfflineSource::OfflineSource(const std::string& folder) : state_(std::make_unique<State>()) {
  state_->folder = folder_with_records(folder);
  for (std::string& path : list_records(state_->folder)) {
    Record record{std::move(path), {}, false};
    record.descriptor = describe_record_file(record.path);
    for (const auto& [key, value] : record.descriptor.tags) state_->tag_names.insert(key);
    state_->by_name_and_step[{record.descriptor.name, record.descriptor.step}].push_back(state_->records.size());
    state_->records.push_back(std::move(record));
  }
  base::log(LogLevel::info, kPart, "takes values from the {} records of '{}'", state_->records.size(), state_->folder);
}

OfflineSource::~OfflineSource() = default;

OfflineAnswer OfflineSource::find(const OfflineRequest& request, std::int64_t max_bytes) {
  OfflineAnswer answer;
  const TagValue* const named = request.tags.find("name");
  const std::string name = named != nullptr ? python_text(named->view()) : std::string();
  std::uint64_t occurrence = 0;
  std::map<int, std::vector<std::size_t>> by_rank;
  {
    const std::lock_guard lock(state_->mutex);
    occurrence = state_->next_occurrence(name, request);
    by_rank = state_->candidates(name, request);
  }
  std::vector<std::size_t> chosen;
  std::vector<int> ranks;
  for (const auto& [rank, records] : by_rank) {
    if (occurrence >= records.size()) continue;
    ranks.push_back(rank);
    if (request.wants_all_ranks || rank == request.rank) chosen.push_back(records[occurrence]);
  }
  if (chosen.empty()) {
    answer.missing = formatted("no record number {} in '{}' of {} at step {}", occurrence + 1, state_->folder,
                               value_text(request.tags), request.step);
    if (!ranks.empty()) {
      answer.missing +=
          formatted(" of rank {}; rank{} {} {} one: name a transform, such as select:0, if that is to do", request.rank,
                    ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), ranks.size() == 1 ? "has" : "have");
    }
    return answer;
  }
  for (const std::size_t index : chosen) answer.senders.push_back(read(state_->records[index], max_bytes));
  const std::lock_guard lock(state_->mutex);
  for (const std::size_t index : chosen) state_->records[index].is_used = true;
  return answer;
}

void OfflineSource::report_unused() {
  std::size_t unused = 0;
  std::vector<std::string> first;
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->is_reported, true)) return;
    for (const Record& record : state_->records) {
      if (record.is_used) continue;
      ++unused;
      if (first.size() < kMostNamed) first.push_back(record.path.substr(record.path.rfind('/') + 1));
    }
  }
  if (unused == 0) {
    base::log(LogLevel::info, kPart, "all {} records of '{}' were used", state_->records.size(), state_->folder);
    return;
  }
  base::log(LogLevel::warning, kPart, "{} of the {} records of '{}' were not asked for: {}{}", unused,
            state_->records.size(), state_->folder, fmt::join(first, ", "), unused > first.size() ? ", ..." : "");
}

}  // namespace dbg::graft
