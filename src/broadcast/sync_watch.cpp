// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Looks, answers, agrees.
#include "broadcast/sync_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr milliseconds kPoll{50};
constexpr std::size_t kLongestText = 4000;

CommErrorKind kind_from(const std::string& text) {
  for (int kind = 0; kind <= static_cast<int>(CommErrorKind::unsupported); ++kind) {
    if (text == to_text(static_cast<CommErrorKind>(kind))) return static_cast<CommErrorKind>(kind);
  }
  return CommErrorKind::broken;
}

constexpr const char* kCommit = "commit";

std::string key_of(std::int64_t generation, std::string_view name) {
  return formatted("s/{}/{}", generation, name);
}

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

std::string SyncCause::to_json() const {
  return Json{{"kind", to_text(kind)}, {"text", text.substr(0, kLongestText)}, {"advice", advice}, {"workers", workers}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

SyncCause SyncCause::from_json(const std::string& text) {
  SyncCause cause;
  cause.text = text.substr(0, kLongestText);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return cause;
  base::run_fenced([&] {
    SyncCause read;
    read.kind = kind_from(json.at("kind").get<std::string>());
    read.text = json.at("text").get<std::string>();
    read.advice = json.at("advice").get<std::string>();
    read.workers = json.at("workers").get<std::vector<int>>();
    cause = std::move(read);
  });
  return cause;
}

void Activity::set(std::string what, bool is_foreign) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  is_foreign_ = is_foreign;
  since_ = steady_clock::now();
}

void Activity::set_buckets(std::int64_t count) {
  const std::lock_guard lock(mutex_);
  buckets_ = count;
}

std::string Activity::text() const {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double> since = steady_clock::now() - since_;
  return formatted("{}{}, since {:.1f} s, {} buckets are through", what_,
                   is_foreign_ ? " (the program's own code)" : "", since.count(), buckets_);
}

bool PullCount::begin() {
  const std::lock_guard lock(mutex_);
  if (is_frozen_) return false;
  ++count_;
  return true;
}

void PullCount::begin_frozen() {
  const std::lock_guard lock(mutex_);
  ++count_;
}

std::int64_t PullCount::freeze() {
  const std::lock_guard lock(mutex_);
  is_frozen_ = true;
  return count_;
}

std::int64_t PullCount::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void PullCount::reset() {
  const std::lock_guard lock(mutex_);
  count_ = 0;
  is_frozen_ = false;
}

SyncWatch::SyncWatch(const c10::intrusive_ptr<distributed::TrackedStore>& store, int worker, int num_workers,
                     bool is_actor)
    : store_(store),
      watch_store_(store->clone()),
      worker_(worker),
      num_workers_(num_workers),
      is_actor_(is_actor),
      thread_([this] { watch(); }) {}

SyncWatch::~SyncWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<distributed::AbortSignal> SyncWatch::begin(std::int64_t generation) {
  pulls_.reset();
  activity_.set_buckets(0);
  auto signal = std::make_shared<distributed::AbortSignal>();
  {
    const std::lock_guard lock(mutex_);
    generation_ = generation;
    signal_ = signal;
    has_answered_ = has_told_pulls_ = false;
  }
  changed_.notify_all();
  return signal;
}

void SyncWatch::end() {
  activity_.set("idle");
  const std::lock_guard lock(mutex_);
  generation_ = -1;
  signal_.reset();
}

void SyncWatch::watch() {
  std::unique_lock lock(mutex_);
  base::RepeatLimiter complaints;
  while (!is_stopped_) {
    if (generation_ < 0) {
      changed_.wait(lock, [&] { return is_stopped_ || generation_ >= 0; });
      continue;
    }
    lock.unlock();
    // A store that stops answering is no end: the operations' own deadlines remain, and it may come back.
    if (const auto refusal = base::run_fenced([&] { look(); })) {
      if (complaints.hit() != 0) {
        base::log(LogLevel::warning, "WeightBroadcaster", "the store does not say whether the sync failed: {}",
                  *refusal);
      }
    }
    lock.lock();
    changed_.wait_for(lock, kPoll, [&] { return is_stopped_; });
  }
}

void SyncWatch::look() {
  std::int64_t generation = -1;
  bool has_answered = false;
  bool has_told_pulls = false;
  std::shared_ptr<distributed::AbortSignal> signal;
  {
    const std::lock_guard lock(mutex_);
    generation = generation_;
    has_answered = has_answered_;
    has_told_pulls = has_told_pulls_;
    signal = signal_;
  }
  if (generation < 0 || !signal) return;
  const std::string prefix = formatted("s/{}/", generation);
  if (!has_answered && watch_store_->check({prefix + "roll"})) {
    watch_store_->set(formatted("{}here/{}", prefix, worker_), activity_.text());
    const std::lock_guard lock(mutex_);
    if (generation_ == generation) has_answered_ = true;
  }
  if (!has_told_pulls && watch_store_->check({prefix + "verdict"})) {
    const std::string text = watch_store_->get_to_str(prefix + "verdict");
    if (text == kCommit) return;
    const SyncCause cause = SyncCause::from_json(text);
    if (is_actor_) watch_store_->set(formatted("{}pulled/{}", prefix, worker_), std::to_string(pulls_.freeze()));
    signal->raise(cause.text);
    const std::lock_guard lock(mutex_);
    if (generation_ == generation) has_told_pulls_ = true;
  }
}

std::optional<SyncCause> SyncWatch::fail(std::int64_t generation, const SyncCause& own) {
  std::optional<SyncCause> agreed = own;
  base::run_fenced([&] {
    const auto stored = store_->compareSet(key_of(generation, "verdict"), {}, bytes_of(own.to_json()));
    const std::string text(stored.begin(), stored.end());
    agreed = text == kCommit ? std::nullopt : std::make_optional(SyncCause::from_json(text));
  });
  std::shared_ptr<distributed::AbortSignal> signal;
  {
    const std::lock_guard lock(mutex_);
    if (generation_ == generation) signal = signal_;
  }
  if (signal && agreed) signal->raise(agreed->text);
  return agreed;
}

std::optional<SyncCause> SyncWatch::decide_commit(std::int64_t generation) {
  const auto stored = store_->compareSet(key_of(generation, "verdict"), {}, bytes_of(kCommit));
  const std::string text(stored.begin(), stored.end());
  return text == kCommit ? std::nullopt : std::make_optional(SyncCause::from_json(text));
}

SyncWatch::Verdict SyncWatch::verdict(std::int64_t generation) {
  Verdict found;
  if (!store_->check({key_of(generation, "verdict")})) return found;
  const auto text = store_->peek(key_of(generation, "verdict"));
  found.is_decided = text.has_value();
  if (text && *text != kCommit) found.cause = SyncCause::from_json(*text);
  return found;
}

SyncWatch::Roll SyncWatch::call_roll(std::int64_t generation, milliseconds limit) {
  Roll roll;
  roll.answers.resize(static_cast<std::size_t>(num_workers_));
  const auto refusal = base::run_fenced([&] {
    store_->put(key_of(generation, "roll"), "who is there?");
    const auto deadline = steady_clock::now() + limit;
    distributed::PollPause pause;
    bool is_complete = false;
    do {
      is_complete = true;
      for (int id = 0; id < num_workers_; ++id) {
        std::string& answer = roll.answers[static_cast<std::size_t>(id)];
        if (id == worker_ || !answer.empty()) continue;
        if (const auto text = store_->peek(key_of(generation, formatted("here/{}", id)))) {
          answer = *text;
        } else {
          is_complete = false;
        }
      }
    } while (!is_complete && pause.wait(deadline));
    for (int id = 0; id < num_workers_; ++id) {
      if (id != worker_ && roll.answers[static_cast<std::size_t>(id)].empty()) roll.silent.push_back(id);
    }
  });
  if (refusal) roll.silent.clear();  // nobody is called silent on no evidence
  return roll;
}

std::int64_t SyncWatch::most_pulled(std::int64_t generation, int num_actors, milliseconds limit) {
  std::int64_t most = pulls_.freeze();
  base::run_fenced([&] {
    store_->put(key_of(generation, formatted("pulled/{}", worker_)), std::to_string(most));
    const auto deadline = steady_clock::now() + limit;
    distributed::PollPause pause;
    std::vector<bool> is_known(static_cast<std::size_t>(num_actors), false);
    bool is_complete = false;
    do {
      is_complete = true;
      for (int id = 0; id < num_actors; ++id) {
        if (id == worker_ || is_known[static_cast<std::size_t>(id)]) continue;
        if (const auto text = store_->peek(key_of(generation, formatted("pulled/{}", id)))) {
          is_known[static_cast<std::size_t>(id)] = true;
          most = std::max<std::int64_t>(most, std::stoll(*text));
        } else {
          is_complete = false;
        }
      }
    } while (!is_complete && pause.wait(deadline));
  });
  return most;
}

void SyncWatch::forget(std::int64_t generation, bool is_root) {
  base::run_fenced([&] {
    if (is_root) {
      for (const char* name : {"verdict", "roll"}) store_->deleteKey(key_of(generation, name));
    }
    for (const char* name : {"here", "pulled"}) {
      store_->deleteKey(key_of(generation, formatted("{}/{}", name, worker_)));
    }
  });
}

}  // namespace dbg::broadcast
