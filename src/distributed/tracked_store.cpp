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
    : TrackedStore(std::move(inner), std::move(prefix), std::make_shared<Written>()) {}

TrackedStore::TrackedStore(c10::intrusive_ptr<c10d::Store> inner, std::string prefix, std::shared_ptr<Written> written)
    : c10d::Store(inner->getTimeout()),
      inner_(std::move(inner)),
      prefix_(std::move(prefix)),
      written_(std::move(written)) {}

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
  inner_->set(full(key), value);
}

std::vector<std::uint8_t> TrackedStore::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                   const std::vector<std::uint8_t>& desired) {
  // What another's `peek` does writes nothing.
  if (expected.empty() || expected != desired) remember(full(key));
  return inner_->compareSet(full(key), expected, desired);
}

std::vector<std::uint8_t> TrackedStore::get(const std::string& key) {
  wait({key}, timeout_);
  return inner_->get(full(key));
}

std::int64_t TrackedStore::add(const std::string& key, std::int64_t value) {
  remember(full(key));
  return inner_->add(full(key), value);
}

bool TrackedStore::deleteKey(const std::string& key) {
  const std::string full_key = full(key);
  {
    const std::lock_guard lock(written_->mutex);
    written_->keys.erase(full_key);
  }
  return inner_->deleteKey(full_key);
}

bool TrackedStore::check(const std::vector<std::string>& keys) {
  return inner_->check(full(keys));
}

std::int64_t TrackedStore::getNumKeys() {
  return inner_->getNumKeys();
}

void TrackedStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void TrackedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const bool is_endless = timeout == kNoTimeout;
  const auto own_deadline = is_endless ? Clock::time_point::max() : Clock::now() + timeout;
  const std::vector<std::string> all = full(keys);
  PollPause pause;
  while (!inner_->check(all)) {
    // Read each time: another thread may end the wait by moving it.
    if (!pause.wait(std::min(own_deadline, written_->deadline.load(std::memory_order_relaxed)))) {
      C10_THROW_ERROR(DistStoreError,
                      formatted("wait timeout after {}ms, keys: {}", timeout.count(), fmt::join(all, ", ")));
    }
  }
}

void TrackedStore::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  remember(full(key));
  inner_->append(full(key), value);
}

std::vector<std::vector<std::uint8_t>> TrackedStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
  return inner_->multiGet(full(keys));
}

void TrackedStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<std::uint8_t>>& values) {
  const std::vector<std::string> all = full(keys);
  for (const std::string& key : all) remember(key);
  inner_->multiSet(all, values);
}

bool TrackedStore::hasExtendedApi() const {
  return inner_->hasExtendedApi();
}

c10::intrusive_ptr<c10d::Store> TrackedStore::clone() {
  // The constructor that shares the list is private, hence no make_intrusive.
  auto copy =
      c10::intrusive_ptr<c10d::Store>::unsafe_steal_from_new(new TrackedStore(clone_of(inner_), prefix_, written_));
  copy->setTimeout(timeout_);
  return copy;
}

void TrackedStore::set_deadline(std::optional<Clock::time_point> deadline) {
  written_->deadline.store(deadline.value_or(Clock::time_point::max()), std::memory_order_relaxed);
}

std::optional<std::string> TrackedStore::peek(const std::string& key) {
  // One operation that never waits: the key is only set to what it is already.
  const std::vector<std::uint8_t> absent(kAbsent.begin(), kAbsent.end());
  const std::vector<std::uint8_t> found = inner_->compareSet(full(key), absent, absent);
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
      inner_->deleteKey(key);
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
