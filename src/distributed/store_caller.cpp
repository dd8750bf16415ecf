// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The thread that asks, those that wait for it, and the list of callers by store.
#include "distributed/store_caller.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/fence.h"
#include "base/fork_lock.h"
#include "base/formatted.h"
#include "base/left_behind.h"
#include "distributed/tracked_store.h"

namespace dbg::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// For a call that begins late, such as the deletion of keys after a failure.
constexpr milliseconds kShortest{200};
// A store may end only once its server's thread does, which may be looking up a client's name: then it ends by itself.
constexpr milliseconds kForItsEnd{500};
// Of a store that has no timeout of its own.
constexpr std::chrono::minutes kLongest{5};

thread_local Clock::time_point thread_deadline = Clock::time_point::max();
thread_local StoreDeadline::Missed thread_missed = StoreDeadline::Missed::means_down;

struct Registry {
  std::mutex mutex;
  std::map<const c10d::Store*, std::weak_ptr<StoreCaller>> callers;  // under mutex
};

std::unique_ptr<Registry> make_registry() {
  return std::make_unique<Registry>();
}

Registry& registry() noexcept {
  return *base::made_once<&make_registry>();  // never destroyed: stores may go while the process exits
}

std::mutex& registry_mutex() noexcept {
  return registry().mutex;
}

// What prefixes stand on.
const c10d::Store& innermost(c10d::Store& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store);
  return prefixed != nullptr ? *prefixed->getUnderlyingNonPrefixStore() : store;
}

bool is_bounded_by_itself(const c10d::Store& store) {
  return dynamic_cast<const c10d::HashStore*>(&store) != nullptr ||
         dynamic_cast<const TrackedStore*>(&store) != nullptr;
}

std::string name_of(c10d::Store& store) {
  const c10d::Store& inner = innermost(store);
  if (const auto* tcp = dynamic_cast<const c10d::TCPStore*>(&inner)) {
    return formatted("the TCPStore at {}:{}", tcp->getHost(), tcp->getPort());
  }
  if (const auto* file = dynamic_cast<const c10d::FileStore*>(&inner)) {
    return formatted("the FileStore {}", file->getPath());
  }
  if (const auto* tracked = dynamic_cast<const TrackedStore*>(&inner)) return tracked->store_name();
  return "the store";
}

}  // namespace

StoreDeadline::StoreDeadline(Clock::time_point deadline, Missed missed)
    : outer_deadline_(thread_deadline), outer_missed_(thread_missed) {
  thread_deadline = std::min(thread_deadline, deadline);
  if (missed == Missed::is_forgiven) thread_missed = missed;
}

StoreDeadline::~StoreDeadline() {
  thread_deadline = outer_deadline_;
  thread_missed = outer_missed_;
}

struct StoreCaller::Shared {
  const c10::intrusive_ptr<c10d::Store> store;
  const std::string name;
  mutable std::mutex mutex;
  std::condition_variable changed;   // for callers
  std::condition_variable job_came;  // for the thread: woken for nothing else, since each call waits for it to wake
  // Under the mutex:
  Job job;                   // for the thread to take
  bool is_taken = false;     // from the handing over of a job until its caller has the answer
  bool has_answer = false;   // which its caller has not fetched yet
  bool is_deserted = false;  // its caller has gone
  bool is_down = false;
  bool is_over = false;            // the thread is to end
  std::optional<std::string> end;  // why no call is taken any more
  std::exception_ptr error;        // the answer, when it is one
  milliseconds limit;
  const char* what = "";
  Clock::time_point since;

  Shared(c10::intrusive_ptr<c10d::Store> of, std::string named)
      : store(std::move(of)),
        name(std::move(named)),
        limit(store->getTimeout() > milliseconds::zero() ? store->getTimeout() : milliseconds(kLongest)) {}

  /// Whether `is_reached` came true for a call begun at `began`: by `latest`, and within the limit, which may change.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, Clock::time_point began, Clock::time_point latest,
            Condition is_reached) {
    while (!is_reached()) {
      const auto deadline = std::max(std::min(latest, began + limit), began + kShortest);
      if (Clock::now() >= deadline) return false;
      changed.wait_until(lock, deadline);
    }
    return true;
  }

  std::string words() const {
    const auto silent = std::chrono::duration<double>(Clock::now() - since).count();
    return formatted("{} does not answer: '{}' has been under way for {:.1f} s", name, what, silent);
  }

  [[noreturn]] void desert(StoreDeadline::Missed missed) {
    if (missed == StoreDeadline::Missed::means_down) is_down = true;
    changed.notify_all();
    throw StoreSilent(words());
  }
};

std::shared_ptr<StoreCaller> StoreCaller::of(const c10::intrusive_ptr<c10d::Store>& store) {
  base::hold_over_forks<&registry_mutex>();
  std::shared_ptr<StoreCaller> found;  // destroyed, perhaps, after the lock is gone
  const std::lock_guard lock(registry_mutex());
  auto& callers = registry().callers;
  std::erase_if(callers, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = callers[store.get()];
  found = entry.lock();
  if (!found || found->owner_pid_ != ::getpid()) {
    found = std::make_shared<StoreCaller>(store);
    entry = found;
  }
  return found;
}

StoreCaller::StoreCaller(c10::intrusive_ptr<c10d::Store> store)
    : shared_(std::make_shared<Shared>(store, name_of(*store))),
      owner_pid_(::getpid()),
      is_direct_(is_bounded_by_itself(innermost(*store))) {}

StoreCaller::~StoreCaller() {
  if (is_direct_) return;
  if (owner_pid_ != ::getpid()) {
    // A forked child has no such thread, nor a server's: neither to be joined nor let go, and the store waits for its.
    static_cast<void>(new std::thread(std::move(thread_)));
    static_cast<void>(new std::shared_ptr<Shared>(std::move(shared_)));
    return;
  }
  bool is_idle = false;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_over = true;
    is_idle = !shared_->is_taken;
  }
  shared_->job_came.notify_one();
  struct End {
    std::thread thread;
    std::shared_ptr<Shared> shared;
  };
  const auto end = std::make_shared<End>(End{std::move(thread_), std::move(shared_)});
  const auto cause = base::run_fenced([&] {
    static_cast<void>(base::finishes_by(Clock::now() + (is_idle ? kForItsEnd : milliseconds(0)), [end] {
      if (end->thread.joinable()) end->thread.join();
      end->shared.reset();
    }));
  });
  if (cause && end->thread.joinable()) end->thread.detach();
}

void StoreCaller::run(const char* what, Job job, Clock::time_point latest) {
  if (is_direct_) {
    job(*shared_->store);
    return;
  }
  if (owner_pid_ != ::getpid()) {
    throw StoreSilent(formatted("{} belongs to process {}, of which this one ({}) is a forked child", shared_->name,
                                owner_pid_, ::getpid()));
  }
  const auto now = Clock::now();
  latest = std::min(latest, thread_deadline);
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  if (!thread_.joinable()) thread_ = std::thread([shared = shared_] { work(shared); });
  shared.wait(lock, now, latest, [&] { return shared.is_down || shared.end || !shared.is_taken; });
  if (shared.end) throw StoreSilent(*shared.end);
  if (shared.is_down) throw StoreSilent(shared.words());
  if (shared.is_taken) shared.desert(thread_missed);
  shared.is_taken = true;
  shared.job = std::move(job);
  shared.what = what;
  shared.since = now;
  shared.job_came.notify_one();
  if (!shared.wait(lock, now, latest, [&] { return shared.has_answer || shared.end; })) {
    shared.is_deserted = true;
    shared.desert(thread_missed);
  }
  if (!shared.has_answer) {
    shared.is_deserted = true;
    throw StoreSilent(*shared.end);
  }
  shared.has_answer = false;
  shared.is_taken = false;
  const std::exception_ptr error = std::exchange(shared.error, nullptr);
  shared.changed.notify_all();
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void StoreCaller::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->job_came.wait(lock, [&] { return shared->is_over || shared->job; });
    if (!shared->job) return;
    Job job = std::exchange(shared->job, nullptr);
    lock.unlock();
    std::exception_ptr error;
    try {
      job(*shared->store);
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      error = std::current_exception();
    }
    job = nullptr;
    lock.lock();
    shared->is_down = false;
    if (shared->is_deserted) {
      shared->is_deserted = false;
      shared->is_taken = false;
    } else {
      shared->error = error;
      shared->has_answer = true;
    }
    error = nullptr;
    shared->changed.notify_all();
  }
}

const c10::intrusive_ptr<c10d::Store>& StoreCaller::store() const noexcept {
  return shared_->store;
}

void StoreCaller::set_limit(milliseconds limit) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->limit = limit;
  }
  shared_->changed.notify_all();
}

milliseconds StoreCaller::limit() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->limit;
}

void StoreCaller::end(std::string why) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->end) shared_->end = std::move(why);
  }
  shared_->changed.notify_all();
}

std::optional<std::string> StoreCaller::fault() const {
  if (const auto* tracked = dynamic_cast<const TrackedStore*>(&innermost(*shared_->store))) return tracked->fault();
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->is_down) return std::nullopt;
  return shared_->words();
}

const std::string& StoreCaller::name() const noexcept {
  return shared_->name;
}

}  // namespace dbg::distributed
