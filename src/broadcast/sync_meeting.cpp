// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Handshakes, words, answers.
#include "broadcast/sync_meeting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "base/fence.h"
#include "base/formatted.h"
#include "broadcast/bucket_exchange.h"
#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Json = nlohmann::json;

std::string key_of(std::int64_t generation, const std::string& name) {
  return formatted("s/{}/{}", generation, name);
}

constexpr milliseconds kFollowersGrace{400};

// Waits between looks: a commit is waited for on the critical path, so never long.
class ShortPause {
 public:
  void wait() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(next_ * 2, std::chrono::microseconds(5000));
  }

 private:
  std::chrono::microseconds next_{50};
};

[[noreturn]] void refuse(const std::string& cause) {
  CommFailure failure;
  failure.kind = CommErrorKind::handshake_mismatch;
  failure.operation = "sync";
  failure.cause = cause;
  throw CommError(std::move(failure));
}

}  // namespace

std::string SyncHello::to_json() const {
  Json json{{"group", group}, {"version", version}, {"num_weights", num_weights}};
  if (manifest) json["manifest"] = *manifest;
  return json.dump();
}

SyncHello SyncHello::from_json(const std::string& text) {
  SyncHello hello;
  const auto refusal = base::run_fenced([&] {
    const Json json = Json::parse(text);
    hello.group = json.at("group").get<std::int64_t>();
    hello.version = json.at("version").get<std::int64_t>();
    hello.num_weights = json.at("num_weights").get<std::uint64_t>();
    if (json.contains("manifest")) hello.manifest = json["manifest"].get<std::uint64_t>();
  });
  if (refusal) refuse(formatted("'{}' in the store is no worker's hello: {}", text.substr(0, 200), *refusal));
  return hello;
}

SyncMeeting::SyncMeeting(c10::intrusive_ptr<distributed::TrackedStore> store, std::vector<std::string> who, int worker,
                         milliseconds timeout)
    : store_(std::move(store)), who_(std::move(who)), worker_(worker), timeout_(timeout) {}

std::int64_t SyncMeeting::meet(const std::string& what, const std::map<std::string, std::string>& settings) {
  distributed::HandshakeRequest request;
  request.name = what;
  request.ranks.resize(who_.size());
  std::iota(request.ranks.begin(), request.ranks.end(), 0);
  request.rank_in_group = worker_;
  // The leader gives up a little before the others, so that they hear its cause and need not find one each.
  request.timeout = worker_ == 0 ? timeout_ : timeout_ + kFollowersGrace;
  request.settings = settings;
  try {
    const distributed::HandshakeResult agreed = distributed::shake_hands(store_, "meet", request);
    // What the meeting before left: everybody has read it, or would not be here.
    if (handshake_keys_) handshake_keys_->delete_written_keys();
    handshake_keys_ = agreed.keys;
    return agreed.generation;
  } catch (const CommError& error) {
    CommFailure failure = error.failure();
    // The handshake knows numbers only.
    std::vector<std::string> names;
    for (const int peer : failure.peers) {
      if (peer >= 0 && peer < static_cast<int>(who_.size())) {
        names.push_back(formatted("rank {} is {}", peer, who_[static_cast<std::size_t>(peer)]));
      }
    }
    if (!names.empty()) failure.cause += formatted("; {}", fmt::join(names, ", "));
    throw CommError(std::move(failure));
  }
}

std::vector<std::string> SyncMeeting::values_of(const std::string& name, int begin, int end) {
  std::vector<std::string> values;
  for (int id = begin; id < end; ++id) {
    auto value = store_->peek(formatted("{}/{}", name, id));
    if (!value)
      refuse(formatted("{} was here, and its '{}' is gone from the store", who_[static_cast<std::size_t>(id)], name));
    values.push_back(std::move(*value));
  }
  return values;
}

void SyncMeeting::put_own(const std::string& name, const std::string& value) {
  store_->put(formatted("{}/{}", name, worker_), value);
}

void SyncMeeting::forget_own(const std::string& name) {
  store_->deleteKey(formatted("{}/{}", name, worker_));
}

std::string SyncMeeting::await(const std::string& key, int worker, const distributed::AbortSignal& signal) {
  const auto deadline = steady_clock::now() + timeout_;
  ShortPause pause;
  for (;;) {
    // Asked first whether it is there: that disturbs others least (a FileStore's readers share, its writers do not).
    if (store_->check({key})) {
      if (auto value = store_->peek(key)) return *value;
    }
    if (signal.cause()) throw Interrupted();
    if (steady_clock::now() >= deadline) throw MeetingTimeout{{worker}, "the root's word to begin"};
    pause.wait();
  }
}

void SyncMeeting::put_begin(std::int64_t generation, const BeginWord& word) {
  store_->put(key_of(generation, "begin"), Json{{"version", word.version}, {"makes_group", word.makes_group}}.dump());
}

BeginWord SyncMeeting::await_begin(std::int64_t generation, const distributed::AbortSignal& signal) {
  const std::string text = await(key_of(generation, "begin"), 0, signal);
  BeginWord word;
  const auto refusal = base::run_fenced([&] {
    const Json json = Json::parse(text);
    word.version = json.at("version").get<std::int64_t>();
    word.makes_group = json.at("makes_group").get<bool>();
  });
  if (refusal) refuse(formatted("'{}' in the store is no root's word: {}", text.substr(0, 200), *refusal));
  return word;
}

void SyncMeeting::put_ready(std::int64_t generation) {
  store_->put(key_of(generation, formatted("ready/{}", worker_)), "ready");
}

void SyncMeeting::await_all_ready(std::int64_t generation, const distributed::AbortSignal& signal) {
  const auto deadline = steady_clock::now() + timeout_;
  const std::vector<std::string> keys = keys_of_others(generation, "ready");
  ShortPause pause;
  while (!store_->check(keys)) {
    if (signal.cause()) throw Interrupted();
    if (steady_clock::now() >= deadline) {
      std::vector<int> missing;
      for (int id = 0; id < static_cast<int>(who_.size()); ++id) {
        if (id != worker_ && !store_->check({key_of(generation, formatted("ready/{}", id))})) missing.push_back(id);
      }
      throw MeetingTimeout{missing, "the bytes to be through"};
    }
    pause.wait();
  }
}

std::vector<std::string> SyncMeeting::keys_of_others(std::int64_t generation, const std::string& name) const {
  std::vector<std::string> keys;
  for (int id = 0; id < static_cast<int>(who_.size()); ++id) {
    if (id != worker_) keys.push_back(key_of(generation, formatted("{}/{}", name, id)));
  }
  return keys;
}

void SyncMeeting::await_verdict(const std::function<bool()>& is_decided, const distributed::AbortSignal& signal) const {
  const auto deadline = steady_clock::now() + timeout_;
  ShortPause pause;
  while (!is_decided()) {
    if (signal.cause()) throw Interrupted();
    if (steady_clock::now() >= deadline) throw MeetingTimeout{{0}, "the word to commit"};
    pause.wait();
  }
}

void SyncMeeting::put_done(std::int64_t generation, const std::string& failure) {
  store_->put(key_of(generation, formatted("done/{}", worker_)), failure.empty() ? "ok" : "failed: " + failure);
}

std::vector<std::optional<std::string>> SyncMeeting::await_all_done(std::int64_t generation) {
  const auto deadline = steady_clock::now() + timeout_;
  const std::vector<std::string> keys = keys_of_others(generation, "done");
  ShortPause pause;
  while (!store_->check(keys) && steady_clock::now() < deadline) pause.wait();
  std::vector<std::optional<std::string>> ends(who_.size());
  for (int id = 0; id < static_cast<int>(who_.size()); ++id) {
    auto& end = ends[static_cast<std::size_t>(id)];
    if (id == worker_) {
      end = "";
    } else if (const auto text = store_->peek(key_of(generation, formatted("done/{}", id)))) {
      end = *text == "ok" ? std::string() : *text;
    }
  }
  return ends;
}

void SyncMeeting::forget(std::int64_t generation) {
  base::run_fenced([&] {
    if (worker_ == 0) store_->deleteKey(key_of(generation, "begin"));
    for (const char* name : {"ready", "done"}) store_->deleteKey(key_of(generation, formatted("{}/{}", name, worker_)));
  });
}

void SyncMeeting::forget_of_all(std::int64_t generation) {
  base::run_fenced([&] {
    for (const char* name : {"begin", "verdict", "roll"}) store_->deleteKey(key_of(generation, name));
    for (std::size_t id = 0; id < who_.size(); ++id) {
      for (const char* name : {"ready", "done"}) store_->deleteKey(key_of(generation, formatted("{}/{}", name, id)));
    }
    if (handshake_keys_) handshake_keys_->delete_written_keys();
  });
}

}  // namespace dbg::broadcast
