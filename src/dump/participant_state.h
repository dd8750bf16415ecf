// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a Dumper keeps per participant (step, dump index, captures) and per participant and thread (context).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "dbg/participant.h"
#include "dbg/tags.h"
#include "dump/sink.h"

namespace dbg {

/// A thread's context: immutable snapshots, null when empty.
struct ThreadTags {
  std::shared_ptr<const Tags> tags;  ///< what a dump of the thread gets
  std::shared_ptr<const Tags> set;   ///< the same without what scopes add: what a new thread may start with
};

/// What a scope did to a thread's context.
struct ContextChange {
  ThreadTags outer;
  std::shared_ptr<const Tags> inner;
  std::uint64_t epoch = 0;  ///< of the time; a reset ends it
  std::vector<std::string> keys;
};

struct ThreadContext;

/// One participant's counters in one Dumper. Threads: safe to use from any thread.
class ParticipantState {
 public:
  ParticipantState(std::uint64_t dumper_id, std::uint64_t participant_id);

  std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  std::int64_t next_step() noexcept { return step_.fetch_add(1, std::memory_order_relaxed) + 1; }
  std::int64_t dump_index() const noexcept { return dump_index_.load(std::memory_order_relaxed); }
  std::int64_t next_dump_index() noexcept { return dump_index_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// The calling thread's context, an immutable snapshot; null when it has none.
  std::shared_ptr<const Tags> context() { return thread_context().tags; }
  /// Merges into the calling thread's context, for good; None removes.
  void set_context(TagList tags);
  /// The same until `leave_context`, and for this thread only.
  ContextChange enter_context(TagList tags);
  /// Gives the keys of the change back what they were before, in the place they had; other keys stay. Does nothing when
  /// there was a reset since.
  void leave_context(ContextChange change);

  /// Back to the start: step, dump index, every thread's context, the clean-up's flag.
  void reset();

  /// True once between resets.
  bool take_cleanup_turn() noexcept { return !cleanup_taken_.exchange(true, std::memory_order_relaxed); }

  /// The innermost capture's sink, or null.
  std::shared_ptr<RecordSink> capture_sink() const;
  void push_capture(std::shared_ptr<RecordSink> sink);
  void remove_capture(const RecordSink* sink);

 private:
  ThreadTags thread_context();
  ThreadContext* own_context(std::uint64_t epoch) const noexcept;
  void store_context(ThreadTags fresh);
  void share_context(const std::shared_ptr<const Tags>& set);

  const std::uint64_t dumper_id_;
  const std::uint64_t participant_id_;
  const std::shared_ptr<const bool> life_ = std::make_shared<const bool>(true);  // threads ask whether it has ended
  std::atomic<std::int64_t> step_{0};
  std::atomic<std::int64_t> dump_index_{0};
  std::atomic<bool> cleanup_taken_{false};
  std::atomic<std::uint64_t> epoch_{1};  // a thread's context of an older epoch is void
  std::atomic<bool> has_shared_context_{false};
  std::atomic<bool> has_captures_{false};
  mutable std::mutex mutex_;
  std::thread::id home_;                               // under mutex_: the thread that set a context first
  std::shared_ptr<const Tags> shared_context_;         // under mutex_: what it set, and a new thread starts with
  std::vector<std::shared_ptr<RecordSink>> captures_;  // under mutex_
};

/// The participants that a Dumper has met; forgets those whose object is gone. Threads: safe to use from any thread.
class ParticipantStates {
 public:
  ParticipantStates();
  std::shared_ptr<ParticipantState> of(const std::shared_ptr<const Participant>& participant);

 private:
  struct Entry {
    std::weak_ptr<const Participant> participant;
    std::shared_ptr<ParticipantState> state;
  };
  const std::uint64_t dumper_id_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;  // under mutex_
};

}  // namespace dbg
