// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Counters, contexts and captures of participants.
#include "dump/participant_state.h"

#include <algorithm>
#include <utility>

namespace dbg {

// A thread serves few participants; the list is short and searched from the front.
struct ThreadContext {
  std::weak_ptr<const bool> life;  // of the ParticipantState
  std::uint64_t dumper_id;
  std::uint64_t participant_id;
  std::uint64_t epoch;
  ThreadTags tags;
};

namespace {

std::uint64_t next_dumper_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

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

ThreadContext* find_thread_context(std::uint64_t dumper_id, std::uint64_t participant_id) noexcept {
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

bool is_same(TagView a, TagView b) noexcept {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case TagKind::none:
      break;
    case TagKind::boolean:
      return a.boolean() == b.boolean();
    case TagKind::integer:
      return a.integer() == b.integer();
    case TagKind::real:
      return a.real() == b.real();
    case TagKind::text:
      return a.text() == b.text();
  }
  return true;
}

std::shared_ptr<const Tags> snapshot_of(Tags tags) {
  return tags.empty() ? nullptr : std::make_shared<const Tags>(std::move(tags));
}

// `now` (null: empty) with `tags` in it; None removes. `now` itself when that changes nothing.
std::shared_ptr<const Tags> merge(const std::shared_ptr<const Tags>& now, TagList tags) {
  const bool changes = std::any_of(tags.begin(), tags.end(), [&now](const TagRef& tag) {
    const TagValue* known = now ? now->find(tag.key) : nullptr;
    return !is_same(known != nullptr ? known->view() : TagView(), tag.value);
  });
  if (!changes) return now;
  Tags merged;
  merged.reserve((now ? now->size() : 0) + tags.size());
  if (now) {
    for (const auto& [key, value] : *now) merged.set(key, value);
  }
  for (const TagRef& tag : tags) {
    if (tag.value.is_none()) {
      merged.erase(tag.key);
    } else {
      merged.set(tag.key, tag.value);
    }
  }
  return snapshot_of(std::move(merged));
}

// `now` with `keys` as they are in `outer`, in the places that they have there.
std::shared_ptr<const Tags> restore(const std::shared_ptr<const Tags>& now, const std::shared_ptr<const Tags>& outer,
                                    const std::vector<std::string>& keys) {
  if (now == outer) return now;
  const auto is_restored = [&keys](const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
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
  return snapshot_of(std::move(restored));
}

}  // namespace

ParticipantState::ParticipantState(std::uint64_t dumper_id, std::uint64_t participant_id)
    : dumper_id_(dumper_id), participant_id_(participant_id) {}

ThreadTags ParticipantState::thread_context() {
  const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
  const ThreadContext* mine = find_thread_context(dumper_id_, participant_id_);
  if (mine != nullptr && mine->epoch == epoch) return mine->tags;
  if (mine == nullptr && !has_shared_context_.load(std::memory_order_acquire)) return {};
  ThreadTags start;
  {
    const std::lock_guard lock(mutex_);
    start = {shared_context_, shared_context_};
  }
  store_thread_context({life_, dumper_id_, participant_id_, epoch, start});
  return start;
}

void ParticipantState::set_context(TagList tags) {
  const ThreadTags now = thread_context();
  ThreadTags fresh{merge(now.tags, tags), merge(now.set, tags)};
  if (fresh.set != now.set) share_context(fresh.set);
  if (fresh.tags != now.tags || fresh.set != now.set) store_context(std::move(fresh));
}

ContextChange ParticipantState::enter_context(TagList tags) {
  ContextChange change;
  change.epoch = epoch_.load(std::memory_order_acquire);
  change.keys.reserve(tags.size());
  for (const TagRef& tag : tags) change.keys.emplace_back(tag.key);
  // In place where the thread has a context: a scope a layer should not move snapshots to and fro.
  if (ThreadContext* const mine = own_context(change.epoch)) {
    change.inner = merge(mine->tags.tags, tags);
    change.outer = {std::exchange(mine->tags.tags, change.inner), mine->tags.set};
    return change;
  }
  change.outer = thread_context();
  change.inner = merge(change.outer.tags, tags);
  store_context({change.inner, change.outer.set});
  return change;
}

void ParticipantState::leave_context(ContextChange change) {
  if (epoch_.load(std::memory_order_acquire) != change.epoch) return;
  ThreadContext* const mine = own_context(change.epoch);
  if (mine != nullptr && mine->tags.tags == change.inner && mine->tags.set == change.outer.set) {
    mine->tags.tags = std::move(change.outer.tags);
    return;
  }
  const ThreadTags now = thread_context();
  ThreadTags restored{restore(now.tags, change.outer.tags, change.keys),
                      restore(now.set, change.outer.set, change.keys)};
  if (restored.set != now.set) share_context(restored.set);
  store_context(std::move(restored));
}

// The calling thread's, where it has one of this epoch.
ThreadContext* ParticipantState::own_context(std::uint64_t epoch) const noexcept {
  ThreadContext* const mine = find_thread_context(dumper_id_, participant_id_);
  return mine != nullptr && mine->epoch == epoch ? mine : nullptr;
}

// Gives new threads what this one set, when it was the first to set anything.
void ParticipantState::share_context(const std::shared_ptr<const Tags>& set) {
  const std::lock_guard lock(mutex_);
  if (home_ == std::thread::id()) home_ = std::this_thread::get_id();
  if (home_ != std::this_thread::get_id()) return;
  shared_context_ = set;
  has_shared_context_.store(set != nullptr, std::memory_order_release);
}

void ParticipantState::store_context(ThreadTags fresh) {
  store_thread_context({life_, dumper_id_, participant_id_, epoch_.load(std::memory_order_acquire), std::move(fresh)});
}

void ParticipantState::reset() {
  const std::lock_guard lock(mutex_);
  step_.store(0, std::memory_order_relaxed);
  dump_index_.store(0, std::memory_order_relaxed);
  cleanup_taken_.store(false, std::memory_order_relaxed);
  home_ = std::thread::id();
  shared_context_.reset();
  has_shared_context_.store(false, std::memory_order_release);
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
