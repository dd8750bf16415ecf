// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Looks into the store, and says what it sees there.
#include "graft/reminder.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "graft/hello.h"
#include "graft/part_name.h"

namespace dbg::graft {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

}  // namespace

Reminder::Reminder(const GraftConfig& config, const Sides& sides, const Periods& periods)
    : config_(config), sides_(sides), periods_(periods), began_(steady_clock::now()), thread_([this] { run(); }) {}

Reminder::~Reminder() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Reminder::look_into(const c10::intrusive_ptr<c10d::Store>& store) {
  auto keys = c10::make_intrusive<distributed::TrackedStore>(store, config_.group_name);
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
}

bool Reminder::saw_nccl() const {
  const std::lock_guard lock(mutex_);
  return saw_nccl_;
}

void Reminder::run() {
  auto next = began_ + periods_.say;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, periods_.look, [this] { return is_over_; })) {
    const c10::intrusive_ptr<distributed::TrackedStore> keys = keys_;
    const bool is_due = steady_clock::now() >= next;
    if (is_due) next += periods_.say;
    lock.unlock();
    // A store that fails here fails the meeting too, which says so.
    static_cast<void>(base::run_fenced([&] { look(keys, is_due); }));
    lock.lock();
  }
}

void Reminder::look(const c10::intrusive_ptr<distributed::TrackedStore>& keys, bool is_due) {
  // The meeting ends with this thread, and must not wait long for it.
  const distributed::StoreDeadline in_time(steady_clock::now() + periods_.look,
                                           distributed::StoreDeadline::Missed::is_forgiven);
  if (keys) {
    look_for_nccl(*keys);
    if (is_due) say_who_is_missing(*keys);
  } else if (is_due) {
    const auto waited = std::chrono::duration_cast<seconds>(steady_clock::now() - began_).count();
    const auto limit = std::chrono::duration_cast<seconds>(config_.timeout).count();
    base::log(LogLevel::info, kPart, "waiting for baseline rank 0 to serve the store at {}:{} ({} s of {})",
              config_.master_address, config_.master_port, waited, limit);
  }
}

void Reminder::look_for_nccl(distributed::TrackedStore& keys) {
  // What NCCL's first rank leaves at its first collective; the others only wait for it.
  if (saw_nccl() || !keys.check({formatted("{}//cuda//0", config_.group_name)})) return;
  {
    const std::lock_guard lock(mutex_);
    saw_nccl_ = true;
  }
  base::log(LogLevel::error, kPart,
            "the peer uses nccl, and this side gloo: they will not meet. Set DUMPER_GRAFTER_BACKEND=gloo there (the "
            "Python twin's default is nccl)");
}

void Reminder::say_who_is_missing(distributed::TrackedStore& keys) {
  std::vector<std::string> missing;
  for (int rank = 0; rank < sides_.size(); ++rank) {
    // Where gloo leaves its address.
    if (!keys.check({formatted("{}//cpu//0/{}", config_.group_name, rank)})) {
      missing.push_back(name_of_rank(sides_, rank));
    }
  }
  if (missing.empty()) return;
  const auto waited = std::chrono::duration_cast<seconds>(steady_clock::now() - began_).count();
  const auto limit = std::chrono::duration_cast<seconds>(config_.timeout).count();
  base::log(LogLevel::info, kPart,
            "waiting for {} ({} s of {}); a Python peer needs DUMPER_GRAFTER_BACKEND=gloo, and the same group name "
            "'{}'",
            fmt::join(missing, ", "), waited, limit, config_.group_name);
}

}  // namespace dbg::graft
