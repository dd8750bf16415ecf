// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Counters, contexts and captures of participants.
#include "dump/participant_state.h"

#include <algorithm>
#include <utility>

namespace dbg {
namespace {

std::uint64_t next_dumper_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// A thread serves few participants; the list is short and searched from the front.
struct ThreadContext {
  std::weak_ptr<const bool> life;  // of the ParticipantState
  std::uint64_t dumper_id;
  std::uint64_t participant_id;
  std::uint64_t epoch;
  std::shared_ptr<const Tags> tags;  // null: empty
};

// The last answer of ParticipantStates: most threads serve one participant and one Dumper. Weak, so that it keeps
// nothing alive; ids are never used twice.
struct LastState {
  std::uint64_t dumper_id = 0;
  std::uint64_t participant_id = 0;
  std::weak_ptr<ParticipantState> state;
};

// Trivial, so that it can still be read when the thread's other objects are gone: static destructors run after those of
// the main thread, and may dump.
constinit thread_local bool memory_is_gone = false;

struct ThreadMemory {
  std::vector<ThreadContext> contexts;
  LastState last;
  ~ThreadMemory() { memory_is_gone = true; }
};

thread_local ThreadMemory thread_memory;

// Null when the thread is at its end, and remembers nothing any more.
ThreadMemory* memory_of_thread() noexcept {
  return memory_is_gone ? nullptr : &thread_memory;
}

ThreadContext* find_thread_context(std::uint64_t dumper_id, std::uint64_t participant_id) {
  ThreadMemory* const memory = memory_of_thread();
  if (memory == nullptr) return nullptr;
  for (ThreadContext& context : memory->contexts) {
    if (context.dumper_id == dumper_id && context.participant_id == participant_id) return &context;
  }
  return nullptr;
}

void store_thread_context(ThreadContext fresh) {
  ThreadMemory* const memory = memory_of_thread();
  if (memory == nullptr) return;
  std::vector<ThreadContext>& thread_contexts = memory->contexts;
  if (ThreadContext* mine = find_thread_context(fresh.dumper_id, fresh.participant_id)) {
    *mine = std::move(fresh);
    return;
  }
  // A thread that outlives many Dumpers must not remember them all.
  if (thread_contexts.size() == thread_contexts.capacity()) {
    thread_contexts.erase(std::remove_if(thread_contexts.begin(), thread_contexts.end(),
                                         [](const ThreadContext& context) { return context.life.expired(); }),
                          thread_contexts.end());
  }
  thread_contexts.push_back(std::move(fresh));
}

}  // namespace

ParticipantState::ParticipantState(std::uint64_t dumper_id, std::uint64_t participant_id)
    : dumper_id_(dumper_id), participant_id_(participant_id) {}

std::shared_ptr<const Tags> ParticipantState::context() {
  const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
  const ThreadContext* mine = find_thread_context(dumper_id_, participant_id_);
  if (mine != nullptr && mine->epoch == epoch) return mine->tags;
  if (mine == nullptr && !has_home_context_.load(std::memory_order_acquire)) return nullptr;
  std::shared_ptr<const Tags> start;
  {
    const std::lock_guard lock(mutex_);
    start = home_context_;
  }
  store_thread_context({life_, dumper_id_, participant_id_, epoch, start});
  return start;
}

void ParticipantState::set_context(const Tags& tags) {
  Tags merged;
  if (const auto now = context()) merged = *now;
  for (const auto& [key, value] : tags) {
    if (value.view().is_none()) {
      merged.erase(key);
    } else {
      merged.set(key, value);
    }
  }
  store_context(merged.empty() ? nullptr : std::make_shared<const Tags>(std::move(merged)));
}

void ParticipantState::restore_context(const std::shared_ptr<const Tags>& outer, const std::vector<std::string>& keys,
                                       std::uint64_t epoch) {
  if (epoch_.load(std::memory_order_acquire) != epoch) return;
  const auto is_restored = [&keys](const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  const auto now = context();
  Tags restored;
  if (outer) {
    for (const auto& [key, value] : *outer) {
      const TagValue* kept = is_restored(key) ? &value : (now ? now->find(key) : nullptr);
      if (kept != nullptr) restored.set(key, *kept);
    }
  }
  if (now) {
    for (const auto& [key, value] : *now) {
      if (!is_restored(key)) restored.set(key, value);
    }
  }
  store_context(restored.empty() ? nullptr : std::make_shared<const Tags>(std::move(restored)));
}

void ParticipantState::store_context(std::shared_ptr<const Tags> fresh) {
  std::uint64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    epoch = epoch_.load(std::memory_order_acquire);
    if (home_ == std::thread::id()) home_ = std::this_thread::get_id();
    if (home_ == std::this_thread::get_id()) {
      home_context_ = fresh;
      has_home_context_.store(home_context_ != nullptr, std::memory_order_release);
    }
  }
  store_thread_context({life_, dumper_id_, participant_id_, epoch, std::move(fresh)});
}

void ParticipantState::reset() {
  const std::lock_guard lock(mutex_);
  step_.store(0, std::memory_order_relaxed);
  dump_index_.store(0, std::memory_order_relaxed);
  cleanup_taken_.store(false, std::memory_order_relaxed);
  home_ = std::thread::id();
  home_context_.reset();
  has_home_context_.store(false, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_acq_rel);
}

std::shared_ptr<RecordSink> ParticipantState::capture_sink() const {
  if (!has_captures_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(mutex_);
  return captures_.empty() ? nullptr : captures_.back();
}

void ParticipantState::push_capture(std::shared_ptr<RecordSink> sink) {
  const std::lock_guard lock(mutex_);
  captures_.push_back(std::move(sink));
  has_captures_.store(true, std::memory_order_release);
}

void ParticipantState::remove_capture(const RecordSink* sink) {
  const std::lock_guard lock(mutex_);
  captures_.erase(std::remove_if(captures_.begin(), captures_.end(),
                                 [sink](const std::shared_ptr<RecordSink>& held) { return held.get() == sink; }),
                  captures_.end());
  has_captures_.store(!captures_.empty(), std::memory_order_release);
}

ParticipantStates::ParticipantStates() : dumper_id_(next_dumper_id()) {}

std::shared_ptr<ParticipantState> ParticipantStates::of(const std::shared_ptr<const Participant>& participant) {
  ThreadMemory* const memory = memory_of_thread();
  if (memory != nullptr && memory->last.dumper_id == dumper_id_ && memory->last.participant_id == participant->id()) {
    if (auto state = memory->last.state.lock()) return state;
  }
  const std::lock_guard lock(mutex_);
  auto found = entries_.find(participant->id());
  if (found == entries_.end()) {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      entry = entry->second.participant.expired() ? entries_.erase(entry) : std::next(entry);
    }
    auto state = std::make_shared<ParticipantState>(dumper_id_, participant->id());
    found = entries_.emplace(participant->id(), Entry{participant, std::move(state)}).first;
  }
  if (memory != nullptr) memory->last = {dumper_id_, participant->id(), found->second.state};
  return found->second.state;
}

}  // namespace dbg
