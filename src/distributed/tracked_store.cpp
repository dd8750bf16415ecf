// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Forwards, prefixes, records; waits by polling.
#include "distributed/tracked_store.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "base/formatted.h"

namespace dbg::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// No value of ours starts with this byte, and no value of gloo's is this text.
constexpr std::string_view kAbsent = "\x01 dbg: no such key";

template <class Store>
c10::intrusive_ptr<Store> clone_where_it_can(const c10::intrusive_ptr<Store>& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> clone_of(const c10::intrusive_ptr<c10d::Store>& store) {
  return clone_where_it_can(store);
}

TrackedStore::TrackedStore(c10::intrusive_ptr<c10d::Store> inner, std::string prefix)
    : TrackedStore(StoreCaller::of(inner), std::move(prefix), std::make_shared<Written>(), inner->getTimeout()) {}

TrackedStore::TrackedStore(std::shared_ptr<StoreCaller> caller, std::string prefix, std::shared_ptr<Written> written,
                           std::chrono::milliseconds timeout)
    : c10d::Store(timeout), caller_(std::move(caller)), prefix_(std::move(prefix)), written_(std::move(written)) {}

template <class Job>
auto TrackedStore::call(const char* what, Job job) {
  return caller_->call(what, std::move(job), written_->deadline.load(std::memory_order_relaxed));
}

std::string TrackedStore::full(const std::string& key) const {
  return prefix_ + '/' + key;
}

std::vector<std::string> TrackedStore::full(const std::vector<std::string>& keys) const {
  std::vector<std::string> all;
  all.reserve(keys.size());
  for (const std::string& key : keys) all.push_back(full(key));
  return all;
}

// Before the write: one that fails half-way may have happened.
void TrackedStore::remember(const std::string& full_key) {
  const std::lock_guard lock(written_->mutex);
  written_->keys.insert(full_key);
}

void TrackedStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  remember(full(key));
  call("set", [key = full(key), value](c10d::Store& inner) { inner.set(key, value); });
}

std::vector<std::uint8_t> TrackedStore::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                   const std::vector<std::uint8_t>& desired) {
  // What another's `peek` does writes nothing.
  if (expected.empty() || expected != desired) remember(full(key));
  return call("compare_set", [key = full(key), expected, desired](c10d::Store& inner) {
    return inner.compareSet(key, expected, desired);
  });
}

std::vector<std::uint8_t> TrackedStore::get(const std::string& key) {
  wait({key}, timeout_);
  return call("get", [key = full(key)](c10d::Store& inner) { return inner.get(key); });
}

std::int64_t TrackedStore::add(const std::string& key, std::int64_t value) {
  remember(full(key));
  return call("add", [key = full(key), value](c10d::Store& inner) { return inner.add(key, value); });
}

bool TrackedStore::deleteKey(const std::string& key) {
  const std::string full_key = full(key);
  {
    const std::lock_guard lock(written_->mutex);
    written_->keys.erase(full_key);
  }
  return call("delete_key", [full_key](c10d::Store& inner) { return inner.deleteKey(full_key); });
}

bool TrackedStore::check(const std::vector<std::string>& keys) {
  return call("check", [all = full(keys)](c10d::Store& inner) { return inner.check(all); });
}

std::int64_t TrackedStore::getNumKeys() {
  return call("num_keys", [](c10d::Store& inner) { return inner.getNumKeys(); });
}

void TrackedStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void TrackedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const bool is_endless = timeout == kNoTimeout;
  const auto own_deadline = is_endless ? Clock::time_point::max() : Clock::now() + timeout;
  const std::vector<std::string> all = full(keys);
  PollPause pause;
  while (!call("check", [all](c10d::Store& inner) { return inner.check(all); })) {
    // Read each time: another thread may end the wait by moving it.
    if (!pause.wait(std::min(own_deadline, written_->deadline.load(std::memory_order_relaxed)))) {
      C10_THROW_ERROR(DistStoreError,
                      formatted("wait timeout after {}ms, keys: {}", timeout.count(), fmt::join(all, ", ")));
    }
  }
}

void TrackedStore::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  remember(full(key));
  call("append", [key = full(key), value](c10d::Store& inner) { inner.append(key, value); });
}

std::vector<std::vector<std::uint8_t>> TrackedStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
  return call("multi_get", [all = full(keys)](c10d::Store& inner) { return inner.multiGet(all); });
}

void TrackedStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<std::uint8_t>>& values) {
  const std::vector<std::string> all = full(keys);
  for (const std::string& key : all) remember(key);
  call("multi_set", [all, values](c10d::Store& inner) { inner.multiSet(all, values); });
}

bool TrackedStore::hasExtendedApi() const {
  return caller_->call("has_extended_api", [](c10d::Store& inner) { return inner.hasExtendedApi(); });
}

c10::intrusive_ptr<c10d::Store> TrackedStore::clone() {
  // The constructor that shares the list is private, hence no make_intrusive.
  return c10::intrusive_ptr<c10d::Store>::unsafe_steal_from_new(new TrackedStore(caller_, prefix_, written_, timeout_));
}

c10::intrusive_ptr<TrackedStore> TrackedStore::with_own_caller(const c10::intrusive_ptr<c10d::Store>& inner,
                                                               std::string prefix) {
  return c10::intrusive_ptr<TrackedStore>::unsafe_steal_from_new(new TrackedStore(
      std::make_shared<StoreCaller>(inner), std::move(prefix), std::make_shared<Written>(), inner->getTimeout()));
}

c10::intrusive_ptr<TrackedStore> TrackedStore::with_own_client() {
  // By the caller, since a client of a store that is silent waits for it already when it is made.
  const c10::intrusive_ptr<c10d::Store> own =
      caller_->call("clone", [store = inner()](c10d::Store&) { return clone_of(store); });
  auto caller = std::make_shared<StoreCaller>(own);
  caller->set_limit(caller_->limit());
  return c10::intrusive_ptr<TrackedStore>::unsafe_steal_from_new(
      new TrackedStore(std::move(caller), prefix_, written_, timeout_));
}

void TrackedStore::set_deadline(std::optional<Clock::time_point> deadline) {
  written_->deadline.store(deadline.value_or(Clock::time_point::max()), std::memory_order_relaxed);
}

std::optional<std::string> TrackedStore::peek(const std::string& key) {
  // One operation that never waits: the key is only set to what it is already.
  const std::vector<std::uint8_t> absent(kAbsent.begin(), kAbsent.end());
  const std::vector<std::uint8_t> found =
      call("peek", [key = full(key), absent](c10d::Store& inner) { return inner.compareSet(key, absent, absent); });
  if (found == absent) return std::nullopt;
  return std::string(found.begin(), found.end());
}

void TrackedStore::put(const std::string& key, std::string_view value) {
  set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

void TrackedStore::leave(const std::string& key) {
  const std::lock_guard lock(written_->mutex);
  written_->keys.erase(full(key));
}

bool TrackedStore::delete_written_keys() noexcept {
  try {
    for (;;) {
      std::string key;
      {
        const std::lock_guard lock(written_->mutex);
        if (written_->keys.empty()) return true;
        key = *written_->keys.begin();
        written_->keys.erase(written_->keys.begin());
      }
      call("delete_key", [key](c10d::Store& inner) { inner.deleteKey(key); });
    }
  } catch (...) {
    return false;
  }
}

std::vector<std::string> TrackedStore::written_keys() const {
  const std::lock_guard lock(written_->mutex);
  return {written_->keys.begin(), written_->keys.end()};
}

bool PollPause::wait(Clock::time_point deadline) {
  const auto now = Clock::now();
  if (now >= deadline) return false;
  std::this_thread::sleep_for(std::min<Clock::duration>(next_, deadline - now));
  next_ = std::min(next_ * 2, most_);
  return true;
}

}  // namespace dbg::distributed
