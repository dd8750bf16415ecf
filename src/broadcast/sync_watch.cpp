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

constexpr std::int64_t kLeastPeriod = 50;  // ms
constexpr std::int64_t kMostPeriod = 500;
constexpr std::size_t kLongestText = 4000;

CommErrorKind kind_from(const std::string& text) {
  for (int kind = 0; kind <= static_cast<int>(CommErrorKind::unsupported); ++kind) {
    if (text == to_text(static_cast<CommErrorKind>(kind))) return static_cast<CommErrorKind>(kind);
  }
  return CommErrorKind::broken;
}

constexpr const char* kCommit = "commit";

// What a store may take to answer once the sync is about to fail.
constexpr milliseconds kHurriedLimit{2000};
// How often a rank says at most that buckets move on it.
constexpr milliseconds kLeastTellEvery{250};
constexpr milliseconds kMostTellEvery{10000};

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

std::int64_t Activity::buckets() const {
  const std::lock_guard lock(mutex_);
  return buckets_;
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

milliseconds watch_period(int num_workers) {
  return milliseconds(std::clamp<std::int64_t>(num_workers / 10, kLeastPeriod, kMostPeriod));
}

SyncWatch::SyncWatch(const c10::intrusive_ptr<distributed::TrackedStore>& store, int worker, int num_workers,
                     bool is_actor)
    : store_(store),
      watch_store_(store_->with_own_client()),
      usual_limit_(store_->call_limit()),
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
  // It may be waiting for a store that says nothing.
  watch_store_->end("nobody watches the sync any more");
  thread_.join();
}

void SyncWatch::hurry() {
  store_->set_call_limit(std::min(usual_limit_, kHurriedLimit));
}

std::shared_ptr<distributed::AbortSignal> SyncWatch::begin(const SyncId& sync) {
  store_->set_call_limit(usual_limit_);
  pulls_.reset();
  activity_.set_buckets(0);
  auto signal = std::make_shared<distributed::AbortSignal>();
  {
    const std::lock_guard lock(mutex_);
    sync_ = sync;
    signal_ = signal;
    has_answered_ = has_told_pulls_ = false;
  }
  changed_.notify_all();
  return signal;
}

void SyncWatch::end() {
  activity_.set("idle");
  const std::lock_guard lock(mutex_);
  sync_ = SyncId();
  signal_.reset();
}

void SyncWatch::watch() {
  std::unique_lock lock(mutex_);
  base::RepeatLimiter complaints;
  while (!is_stopped_) {
    if (sync_.generation < 0) {
      changed_.wait(lock, [&] { return is_stopped_ || sync_.generation >= 0; });
      told_buckets_ = 0;
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
    changed_.wait_for(lock, watch_period(num_workers_), [&] { return is_stopped_; });
  }
}

void SyncWatch::tell(const SyncId& sync, std::string_view name, const std::string& value) {
  const std::string key = sync.key(formatted("{}/{}", name, worker_));
  watch_store_->put(key, value);
  take_back_if_forgotten(sync, key);
}

void SyncWatch::take_back_if_forgotten(const SyncId& sync, const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    if (!(forgotten_ == sync)) return;
  }
  watch_store_->deleteKey(key);  // all were through before it was written
}

void SyncWatch::look() {
  SyncId sync;
  bool has_answered = false;
  bool has_told_pulls = false;
  std::shared_ptr<distributed::AbortSignal> signal;
  {
    const std::lock_guard lock(mutex_);
    sync = sync_;
    has_answered = has_answered_;
    has_told_pulls = has_told_pulls_;
    signal = signal_;
  }
  if (sync.generation < 0 || !signal) return;
  const bool is_news = !(has_answered && has_told_pulls) && watch_store_->check({sync.key("news")});
  if (is_news && !has_answered && watch_store_->check({sync.key("roll")})) {
    tell(sync, "here", activity_.text());
    const std::lock_guard lock(mutex_);
    if (sync_ == sync) has_answered_ = true;
  }
  if (is_news && !has_told_pulls && watch_store_->check({sync.key("verdict")})) {
    // Never a `get`: it waits when the root has just forgotten the sync.
    const auto text = watch_store_->peek(sync.key("verdict"));
    if (!text || *text == kCommit) return;
    const std::int64_t pulled = pulls_.freeze();
    signal->raise(SyncCause::from_json(*text).text);
    if (is_actor_) tell(sync, "pulled", std::to_string(pulled));
    const std::lock_guard lock(mutex_);
    if (sync_ == sync) has_told_pulls_ = true;
  }
  const std::int64_t buckets = activity_.buckets();
  const auto now = steady_clock::now();
  if (buckets == told_buckets_ || now < told_at_ + std::clamp(usual_limit_ / 8, kLeastTellEvery, kMostTellEvery)) {
    return;
  }
  told_buckets_ = buckets;
  told_at_ = now;
  watch_store_->add(sync.key("moves"), 1);
  watch_store_->leave(sync.key("moves"));
  take_back_if_forgotten(sync, sync.key("moves"));
}

void SyncWatch::announce(const SyncId& sync) {
  store_->put(sync.key("news"), "look");
  store_->leave(sync.key("news"));
}

std::string SyncWatch::write_verdict(const SyncId& sync, const std::string& word) {
  if (word != kCommit) announce(sync);
  const auto stored = store_->compareSet(sync.key("verdict"), {}, bytes_of(word));
  store_->leave(sync.key("verdict"));
  return {stored.begin(), stored.end()};
}

std::optional<SyncCause> SyncWatch::fail(const SyncId& sync, const SyncCause& own) {
  hurry();
  std::optional<SyncCause> agreed = own;
  // First in the store, then here: should the root have decided to commit, nothing is to be ended.
  base::run_fenced([&] {
    const std::string text = write_verdict(sync, own.to_json());
    agreed = text == kCommit ? std::nullopt : std::make_optional(SyncCause::from_json(text));
  });
  std::shared_ptr<distributed::AbortSignal> signal;
  {
    const std::lock_guard lock(mutex_);
    if (sync_ == sync) signal = signal_;
  }
  if (signal && agreed) signal->raise(agreed->text);
  return agreed;
}

bool SyncWatch::settle(const SyncId& sync, const SyncCause& own) {
  return write_verdict(sync, own.to_json()) == kCommit;
}

std::optional<SyncCause> SyncWatch::decide_commit(const SyncId& sync) {
  const std::string text = write_verdict(sync, kCommit);
  return text == kCommit ? std::nullopt : std::make_optional(SyncCause::from_json(text));
}

SyncWatch::Verdict SyncWatch::verdict(const SyncId& sync) {
  Verdict found;
  if (!store_->check({sync.key("verdict")})) return found;
  const auto text = store_->peek(sync.key("verdict"));
  found.is_decided = text.has_value();
  if (text && *text != kCommit) found.cause = SyncCause::from_json(*text);
  return found;
}

bool SyncWatch::may_call_roll(const SyncId& sync) {
  const std::string own = std::to_string(worker_);
  const auto caller = store_->compareSet(sync.key("roll"), {}, bytes_of(own));
  store_->leave(sync.key("roll"));
  return std::string(caller.begin(), caller.end()) == own;
}

SyncWatch::Roll SyncWatch::call_roll(const SyncId& sync, milliseconds limit) {
  Roll roll;
  roll.answers.resize(static_cast<std::size_t>(num_workers_));
  const auto refusal = base::run_fenced([&] {
    may_call_roll(sync);  // one that another asked for does as well
    announce(sync);
    const auto deadline = steady_clock::now() + limit;
    distributed::PollPause pause;
    bool is_complete = false;
    do {
      is_complete = true;
      for (int id = 0; id < num_workers_; ++id) {
        std::string& answer = roll.answers[static_cast<std::size_t>(id)];
        if (id == worker_ || !answer.empty()) continue;
        if (const auto text = store_->peek(sync.key(formatted("here/{}", id)))) {
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

std::int64_t SyncWatch::most_pulled(const SyncId& sync, int num_actors, milliseconds limit) {
  std::int64_t most = pulls_.freeze();
  base::run_fenced([&] {
    store_->put(sync.key(formatted("pulled/{}", worker_)), std::to_string(most));
    const auto deadline = steady_clock::now() + limit;
    distributed::PollPause pause;
    std::vector<bool> is_known(static_cast<std::size_t>(num_actors), false);
    bool is_complete = false;
    do {
      is_complete = true;
      for (int id = 0; id < num_actors; ++id) {
        if (id == worker_ || is_known[static_cast<std::size_t>(id)]) continue;
        if (const auto text = store_->peek(sync.key(formatted("pulled/{}", id)))) {
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

void SyncWatch::forget(const SyncId& sync, bool is_root) {
  {
    const std::lock_guard lock(mutex_);
    forgotten_ = sync;
  }
  base::run_fenced([&] {
    if (is_root) {
      for (const char* name : {"news", "verdict", "roll", "moves"}) store_->deleteKey(sync.key(name));
    }
    for (const char* name : {"here", "pulled"}) store_->deleteKey(sync.key(formatted("{}/{}", name, worker_)));
  });
}

}  // namespace dbg::broadcast
