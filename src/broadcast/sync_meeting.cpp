// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Handshakes, words, answers.
#include "broadcast/sync_meeting.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
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

constexpr milliseconds kFollowersGrace{400};

// A commit is waited for on the critical path, so never long between looks; with hundreds of workers each asks less
// often, or they would all wait for a store that is busy with telling them that there is nothing.
distributed::PollPause pause_among(std::size_t workers) {
  return distributed::PollPause(
      std::chrono::microseconds(std::clamp<std::int64_t>(static_cast<std::int64_t>(workers) * 100, 5000, 200000)));
}
constexpr auto kNoDeadline = steady_clock::time_point::max();

// The numbers that a text calls ranks, each once, in order.
std::vector<int> ranks_in(const std::string& text) {
  constexpr std::string_view kWord = "rank ";
  std::set<int> ranks;
  for (std::size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at)) {
    at += kWord.size();
    int rank = 0;
    if (std::from_chars(text.data() + at, text.data() + text.size(), rank).ec == std::errc()) ranks.insert(rank);
  }
  return {ranks.begin(), ranks.end()};
}

[[noreturn]] void refuse(const std::string& cause) {
  CommFailure failure;
  failure.kind = CommErrorKind::handshake_mismatch;
  failure.operation = "sync";
  failure.cause = cause;
  failure.advice =
      "see that nothing else writes under this broadcaster's keys, and whether all ranks run the same build";
  throw CommError(std::move(failure));
}

}  // namespace

std::string SyncHello::to_json() const {
  Json json{{"group", group}, {"version", version}, {"num_weights", num_weights}, {"fails", fails}};
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
    hello.fails = json.at("fails").get<bool>();
    if (json.contains("manifest")) hello.manifest = json["manifest"].get<std::uint64_t>();
  });
  if (refusal) refuse(formatted("'{}' in the store is no worker's hello: {}", text.substr(0, 200), *refusal));
  return hello;
}

SyncMeeting::SyncMeeting(c10::intrusive_ptr<distributed::TrackedStore> store, std::vector<std::string> who, int worker,
                         milliseconds timeout)
    : store_(std::move(store)), who_(std::move(who)), worker_(worker), timeout_(timeout) {}

SyncId SyncMeeting::meet(const std::string& what, const std::map<std::string, std::string>& settings) {
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
    return {agreed.generation, agreed.nonce};
  } catch (const CommError& error) {
    CommFailure failure = error.failure();
    // The handshake knows numbers only; and of two that differ each calls the other its peer, where all shall hear the
    // same.
    if (failure.kind == CommErrorKind::handshake_mismatch) failure.peers = ranks_in(failure.cause);
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

// A deadline that is put off as long as buckets move on any rank: each rank of the group holds its own waits to the
// timeout, and a rank that only waits for their end can't know how many they are.
class SyncMeeting::Patience {
 public:
  Patience(SyncMeeting& meeting, const SyncId& sync)
      : meeting_(meeting), key_(sync.key("moves")), looked_(steady_clock::now()), moved_(looked_) {}

  bool is_over() {
    const auto now = steady_clock::now();
    // Seldom: what moves says so seldom too.
    if (now >= looked_ + meeting_.timeout_ / 4) {
      looked_ = now;
      base::run_fenced([&] {
        auto moves = meeting_.store_->peek(key_);
        if (has_looked_ && moves != moves_) moved_ = now;
        has_looked_ = true;
        moves_ = std::move(moves);
      });
    }
    return now >= moved_ + meeting_.timeout_;
  }

 private:
  SyncMeeting& meeting_;
  const std::string key_;
  steady_clock::time_point looked_;
  steady_clock::time_point moved_;
  bool has_looked_ = false;
  std::optional<std::string> moves_;
};

void SyncMeeting::put_begin(const SyncId& sync, const BeginWord& word) {
  store_->put(sync.key("begin"), Json{{"version", word.version}, {"makes_group", word.makes_group}}.dump());
}

BeginWord SyncMeeting::await_begin(const SyncId& sync, const distributed::AbortSignal& signal) {
  const std::string key = sync.key("begin");
  const auto deadline = steady_clock::now() + timeout_;
  distributed::PollPause pause = pause_among(who_.size());
  // Asked whether it is there: that disturbs others least (a FileStore's readers share, its writers do not).
  while (!store_->check({key})) {
    if (signal.cause()) throw Interrupted();
    if (steady_clock::now() >= deadline) throw MeetingTimeout{{0}, "the root's word to begin"};
    pause.wait(kNoDeadline);
  }
  const std::string text = store_->peek(key).value_or("");
  BeginWord word;
  const auto refusal = base::run_fenced([&] {
    const Json json = Json::parse(text);
    word.version = json.at("version").get<std::int64_t>();
    word.makes_group = json.at("makes_group").get<bool>();
  });
  if (refusal) refuse(formatted("'{}' in the store is no root's word: {}", text.substr(0, 200), *refusal));
  return word;
}

void SyncMeeting::put_pushed(const SyncId& sync, std::int64_t count) {
  store_->put(sync.key("pushed"), std::to_string(count));
}

std::int64_t SyncMeeting::await_pushed(const SyncId& sync, std::int64_t count, const distributed::AbortSignal& signal) {
  const std::string key = sync.key("pushed");
  Patience patience(*this, sync);
  distributed::PollPause pause = pause_among(who_.size());
  for (;;) {
    std::int64_t pushed = 0;
    const auto text = store_->check({key}) ? store_->peek(key) : std::nullopt;
    if (text && base::run_fenced([&] { pushed = std::stoll(*text); })) {
      refuse(formatted("'{}' in the store is no number of buckets", text->substr(0, 200)));
    }
    if (pushed >= count) return pushed;
    if (signal.cause()) throw Interrupted();
    if (patience.is_over()) throw MeetingTimeout{{0}, "the root to take its weights"};
    pause.wait(kNoDeadline);
  }
}

void SyncMeeting::put_ready(const SyncId& sync) {
  store_->put(sync.key(formatted("ready/{}", worker_)), "ready");
}

void SyncMeeting::await_all_ready(const SyncId& sync, const distributed::AbortSignal& signal) {
  Patience patience(*this, sync);
  const std::vector<std::string> keys = keys_of_others(sync, "ready");
  distributed::PollPause pause = pause_among(who_.size());
  while (!store_->check(keys)) {
    if (signal.cause()) throw Interrupted();
    if (patience.is_over()) {
      std::vector<int> missing;
      for (int id = 0; id < static_cast<int>(who_.size()); ++id) {
        if (id != worker_ && !store_->check({sync.key(formatted("ready/{}", id))})) missing.push_back(id);
      }
      throw MeetingTimeout{missing, "the bytes to be through"};
    }
    pause.wait(kNoDeadline);
  }
}

std::vector<std::string> SyncMeeting::keys_of_others(const SyncId& sync, const std::string& name) const {
  std::vector<std::string> keys;
  for (int id = 0; id < static_cast<int>(who_.size()); ++id) {
    if (id != worker_) keys.push_back(sync.key(formatted("{}/{}", name, id)));
  }
  return keys;
}

void SyncMeeting::await_verdict(const SyncId& sync, const std::function<bool()>& is_decided,
                                const distributed::AbortSignal& signal) {
  Patience patience(*this, sync);
  distributed::PollPause pause = pause_among(who_.size());
  std::string trouble;
  for (;;) {
    // It may be decided by now, so a store that fails is asked again: it alone knows.
    try {
      if (is_decided()) return;
      trouble.clear();
    } catch (const c10::Error& error) {
      trouble = formatted(", while the store failed: {}", error.what_without_backtrace());
    }
    if (signal.cause()) throw Interrupted();
    if (patience.is_over()) throw MeetingTimeout{{0}, "the word to commit" + trouble};
    pause.wait(kNoDeadline);
  }
}

void SyncMeeting::put_done(const SyncId& sync, const std::string& failure) {
  store_->put(sync.key(formatted("done/{}", worker_)), failure.empty() ? "ok" : "failed: " + failure);
}

std::vector<std::optional<std::string>> SyncMeeting::await_all_done(const SyncId& sync, milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  const std::vector<std::string> keys = keys_of_others(sync, "done");
  distributed::PollPause pause = pause_among(who_.size());
  while (!store_->check(keys) && steady_clock::now() < deadline) pause.wait(kNoDeadline);
  std::vector<std::optional<std::string>> ends(who_.size());
  for (int id = 0; id < static_cast<int>(who_.size()); ++id) {
    auto& end = ends[static_cast<std::size_t>(id)];
    if (id == worker_) {
      end = "";
    } else if (const auto text = store_->peek(sync.key(formatted("done/{}", id)))) {
      end = *text == "ok" ? std::string() : *text;
    }
  }
  return ends;
}

void SyncMeeting::forget(const SyncId& sync) {
  base::run_fenced([&] {
    if (worker_ == 0) {
      for (const char* name : {"begin", "pushed"}) store_->deleteKey(sync.key(name));
    }
    for (const char* name : {"ready", "done"}) store_->deleteKey(sync.key(formatted("{}/{}", name, worker_)));
  });
}

void SyncMeeting::forget_of_all(const SyncId& sync) {
  base::run_fenced([&] {
    for (const char* name : {"begin", "pushed", "news", "verdict", "roll", "moves"}) store_->deleteKey(sync.key(name));
    for (std::size_t id = 0; id < who_.size(); ++id) {
      for (const char* name : {"ready", "done", "here", "pulled"}) {
        store_->deleteKey(sync.key(formatted("{}/{}", name, id)));
      }
    }
    if (handshake_keys_) handshake_keys_->delete_written_keys();
  });
}

}  // namespace dbg::broadcast
