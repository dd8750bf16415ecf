// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Writes, reads and waits for the notes. A store that is down is no second failure.
#include "distributed/failure_notes.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>

#include "base/fence.h"
#include "base/formatted.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {
namespace {

constexpr const char* kAnyKey = "failed/any";
constexpr const char* kClosingKey = "closing";
constexpr std::chrono::milliseconds kPoll{20};
constexpr std::size_t kLongestCause = 500;
// For one call of the store. Notes are a help, and no operation may wait for a store that is silent.
constexpr std::chrono::milliseconds kPatience{250};

class ShortCall : public StoreDeadline {
 public:
  explicit ShortCall(std::chrono::milliseconds patience = kPatience)
      : StoreDeadline(std::chrono::steady_clock::now() + patience, Missed::is_forgiven) {}
};

std::string key_of(int rank_in_group) {
  return formatted("failed/{}", rank_in_group);
}

std::string made_key_of(int rank_in_group) {
  return formatted("made/{}", rank_in_group);
}

std::optional<CommErrorKind> kind_from(std::string_view text) {
  for (int kind = 0; kind <= static_cast<int>(CommErrorKind::unsupported); ++kind) {
    if (text == to_text(static_cast<CommErrorKind>(kind))) return static_cast<CommErrorKind>(kind);
  }
  return std::nullopt;
}

// A key that goes between two questions would be waited for.
std::optional<std::string> look_for(c10d::Store& store, const std::string& key) {
  if (auto* const tracked = dynamic_cast<TrackedStore*>(&store)) return tracked->peek(key);
  if (!store.check({key})) return std::nullopt;
  return store.get_to_str(key);
}

}  // namespace

std::string FailureNote::to_text() const {
  return formatted("{}\n{}\n{}\n{}", dbg::to_text(kind), operation, sequence,
                   std::string_view(cause).substr(0, kLongestCause));
}

std::optional<FailureNote> FailureNote::parse(const std::string& text) {
  const std::string_view all(text);
  const std::size_t first = all.find('\n');
  const std::size_t second = first == all.npos ? first : all.find('\n', first + 1);
  const std::size_t third = second == all.npos ? second : all.find('\n', second + 1);
  if (third == all.npos) return std::nullopt;
  FailureNote note;
  const auto kind = kind_from(all.substr(0, first));
  if (!kind) return std::nullopt;
  note.kind = *kind;
  note.operation = all.substr(first + 1, second - first - 1);
  const std::string_view number = all.substr(second + 1, third - second - 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), note.sequence);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  note.cause = all.substr(third + 1, kLongestCause);
  return note;
}

std::optional<std::string> leave_failure_note(const GroupHalf& half, const FailureNote& note) {
  if (!half.store) return std::nullopt;
  return base::run_fenced([&] {
    const ShortCall in_time;
    half.store->set(key_of(half.rank_in_group), note.to_text());
    half.store->set(kAnyKey, "1");
  });
}

bool has_failure_note(const GroupHalf& half) {
  bool is_there = false;
  if (half.store) {
    base::run_fenced([&] {
      const ShortCall in_time;
      is_there = half.store->check({kAnyKey});
    });
  }
  return is_there;
}

namespace {

std::optional<FailureNotes> collect(const GroupHalf& half, std::chrono::milliseconds limit, bool counts_made) {
  if (!half.store) return std::nullopt;
  FailureNotes notes;
  const auto refusal = base::run_fenced([&] {
    const ShortCall in_time(limit);
    const auto deadline = std::chrono::steady_clock::now() + limit;
    notes.by_rank.resize(static_cast<std::size_t>(half.size()));
    std::vector<int> awaited;
    for (int rank = 0; rank < half.size(); ++rank) {
      if (rank != half.rank_in_group) awaited.push_back(rank);
    }
    for (;;) {
      awaited.erase(std::remove_if(awaited.begin(), awaited.end(),
                                   [&](int rank) {
                                     const auto text = look_for(*half.store, key_of(rank));
                                     if (!text) return counts_made && half.store->check({made_key_of(rank)});
                                     notes.by_rank[static_cast<std::size_t>(rank)] = FailureNote::parse(*text);
                                     return true;
                                   }),
                    awaited.end());
      if (awaited.empty() || std::chrono::steady_clock::now() >= deadline) break;
      std::this_thread::sleep_for(kPoll);
    }
    notes.silent = std::move(awaited);
  });
  if (refusal) return std::nullopt;
  return notes;
}

}  // namespace

std::optional<FailureNotes> collect_failure_notes(const GroupHalf& half, std::chrono::milliseconds limit) {
  return collect(half, limit, false);
}

std::optional<FailureNotes> collect_notes_of_making(const GroupHalf& half, std::chrono::milliseconds limit) {
  return collect(half, limit, true);
}

void leave_made_note(TrackedStore& notes, int rank_in_group) {
  notes.put(made_key_of(rank_in_group), "1");
}

std::int64_t count_as_closing(TrackedStore& notes) {
  return notes.add(kClosingKey, 1);
}

bool have_all_closed(TrackedStore& notes, int size) {
  const auto count = notes.peek(kClosingKey);
  return !count || std::stoll(*count) >= size;
}

void delete_notes(TrackedStore& notes, int size, std::int64_t count) {
  if (count < size) {
    notes.leave(kClosingKey);
    notes.leave(kAnyKey);
    for (int rank = 0; rank < size; ++rank) {
      notes.leave(key_of(rank));
      notes.leave(made_key_of(rank));
    }
  } else {
    notes.deleteKey(kClosingKey);
    const bool has_failed = notes.deleteKey(kAnyKey);
    for (int rank = 0; rank < size; ++rank) {
      notes.deleteKey(made_key_of(rank));
      if (has_failed) notes.deleteKey(key_of(rank));
    }
  }
  notes.delete_written_keys();
}

}  // namespace dbg::distributed
