// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Hands calls to a thread, waits for them, gives them up.
#include "broadcast/patient_store.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "base/formatted.h"
#include "distributed/tracked_store.h"

namespace dbg::broadcast {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

PatientStore::PatientStore(c10::intrusive_ptr<c10d::Store> inner, std::chrono::milliseconds limit)
    : c10d::Store(inner->getTimeout()), shared_(std::make_shared<Shared>()), owner_pid_(::getpid()) {
  shared_->inner = std::move(inner);
  shared_->limit = limit;
  thread_ = std::thread([shared = shared_] { serve(shared); });
}

PatientStore::~PatientStore() {
  if (::getpid() != owner_pid_) {
    // A forked child has no such thread, and maybe a mutex that nobody will ever unlock.
    static_cast<void>(new std::shared_ptr<Shared>(shared_));
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  close();
  bool has_ended = false;
  {
    // Idle, it ends at once; in a call it may be in there for ever.
    std::unique_lock lock(shared_->mutex);
    has_ended = shared_->answered.wait_for(lock, std::chrono::milliseconds(100), [&] { return shared_->has_ended; });
  }
  if (has_ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void PatientStore::serve(const std::shared_ptr<Shared>& shared) {
  ::pthread_setname_np(::pthread_self(), "dbg-store");
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->asked.wait(lock, [&] { return shared->is_closed || !shared->calls.empty(); });
    if (shared->is_closed) break;
    const std::shared_ptr<Call> call = std::move(shared->calls.front());
    shared->calls.pop_front();
    if (call->is_given_up) continue;
    lock.unlock();
    std::exception_ptr error;
    try {
      call->run(*shared->inner);
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    call->error = error;
    call->is_done = true;
    shared->is_silent = false;
    shared->answered.notify_all();
  }
  shared->has_ended = true;
  shared->answered.notify_all();
}

void PatientStore::run(std::function<void(c10d::Store&)> function) const {
  const auto call = std::make_shared<Call>();
  call->run = std::move(function);
  const auto began = Clock::now();
  std::unique_lock lock(shared_->mutex);
  if (shared_->is_silent) C10_THROW_ERROR(DistStoreError, "the store still does not answer");
  if (shared_->is_closed) C10_THROW_ERROR(DistStoreError, "the store is no longer asked");
  shared_->calls.push_back(call);
  shared_->asked.notify_one();
  while (!call->is_done) {
    const bool is_late = Clock::now() >= began + shared_->limit;
    if (is_late || shared_->is_closed) {
      call->is_given_up = true;
      if (shared_->is_closed) C10_THROW_ERROR(DistStoreError, "the store is no longer asked");
      shared_->is_silent = true;
      C10_THROW_ERROR(DistStoreError, formatted("the store did not answer within {} ms", shared_->limit.count()));
    }
    shared_->answered.wait_until(lock, began + shared_->limit);
  }
  if (call->error) std::rethrow_exception(call->error);
}

template <class Result, class Function>
Result PatientStore::ask(Function function) const {
  const auto result = std::make_shared<Result>();
  run([result, call = std::move(function)](c10d::Store& store) { *result = call(store); });
  return std::move(*result);
}

void PatientStore::set_limit(std::chrono::milliseconds limit) {
  const std::lock_guard lock(shared_->mutex);
  shared_->limit = limit;
  shared_->answered.notify_all();
}

std::chrono::milliseconds PatientStore::limit() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->limit;
}

void PatientStore::close() noexcept {
  const std::lock_guard lock(shared_->mutex);
  shared_->is_closed = true;
  shared_->asked.notify_all();
  shared_->answered.notify_all();
}

void PatientStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  run([key, value](c10d::Store& store) { store.set(key, value); });
}

std::vector<std::uint8_t> PatientStore::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                   const std::vector<std::uint8_t>& desired) {
  return ask<std::vector<std::uint8_t>>(
      [key, expected, desired](c10d::Store& store) { return store.compareSet(key, expected, desired); });
}

std::vector<std::uint8_t> PatientStore::get(const std::string& key) {
  return ask<std::vector<std::uint8_t>>([key](c10d::Store& store) { return store.get(key); });
}

std::int64_t PatientStore::add(const std::string& key, std::int64_t value) {
  return ask<std::int64_t>([key, value](c10d::Store& store) { return store.add(key, value); });
}

bool PatientStore::deleteKey(const std::string& key) {
  return ask<bool>([key](c10d::Store& store) { return store.deleteKey(key); });
}

bool PatientStore::check(const std::vector<std::string>& keys) {
  return ask<bool>([keys](c10d::Store& store) { return store.check(keys); });
}

std::int64_t PatientStore::getNumKeys() {
  return ask<std::int64_t>([](c10d::Store& store) { return store.getNumKeys(); });
}

void PatientStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void PatientStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  // Asked again and again, so that no other call stands behind this one.
  const auto deadline = timeout == kNoTimeout ? Clock::time_point::max() : Clock::now() + timeout;
  distributed::PollPause pause;
  while (!check(keys)) {
    if (!pause.wait(deadline)) {
      C10_THROW_ERROR(DistStoreError, formatted("wait timeout after {}ms, keys: {}", timeout.count(), keys.front()));
    }
  }
}

void PatientStore::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  run([key, value](c10d::Store& store) { store.append(key, value); });
}

std::vector<std::vector<std::uint8_t>> PatientStore::multiGet(const std::vector<std::string>& keys) {
  return ask<std::vector<std::vector<std::uint8_t>>>([keys](c10d::Store& store) { return store.multiGet(keys); });
}

void PatientStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<std::uint8_t>>& values) {
  run([keys, values](c10d::Store& store) { store.multiSet(keys, values); });
}

bool PatientStore::hasExtendedApi() const {
  return shared_->inner->hasExtendedApi();
}

c10::intrusive_ptr<c10d::Store> PatientStore::clone() {
  // A clone of a TCPStore connects, which a stopped server never answers.
  auto copy = ask<c10::intrusive_ptr<c10d::Store>>(
      [](c10d::Store& store) { return distributed::clone_of(c10::intrusive_ptr<c10d::Store>::reclaim_copy(&store)); });
  return c10::make_intrusive<PatientStore>(std::move(copy), limit());
}

}  // namespace dbg::broadcast
