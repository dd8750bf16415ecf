// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Joins store and group, and says meanwhile who is waited for.
#include "graft/meeting.h"

#include <fmt/ranges.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dbg/world.h"
#include "graft/frame.h"

namespace dbg::graft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::string_view kPart = "Grafter";
constexpr seconds kReminderPeriod{10};
constexpr milliseconds kLookPeriod{500};

std::string name_of_rank(const Sides& sides, int rank) {
  return rank < sides.baseline ? formatted("baseline rank {}", rank)
                               : formatted("target rank {}", rank - sides.baseline);
}

std::string hello_text(const Sides& sides) {
  return formatted("{} {} {}", kFrameVersion, sides.baseline, sides.target);
}

// While it lives, a thread of its own says who is missing. It must not outlive the store.
class Reminder {
 public:
  Reminder(const GraftConfig& config, const Sides& sides)
      : config_(config), sides_(sides), began_(steady_clock::now()), thread_([this] { run(); }) {}
  ~Reminder() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Reminder(const Reminder&) = delete;
  Reminder& operator=(const Reminder&) = delete;

  /// From here on the store can be asked.
  void look_into(c10::intrusive_ptr<c10d::Store> store) {
    const std::lock_guard lock(mutex_);
    store_ = std::move(store);
  }

  /// For an error's advice: whether somebody was seen to use NCCL.
  bool saw_nccl() const {
    const std::lock_guard lock(mutex_);
    return saw_nccl_;
  }

 private:
  void run() {
    auto next = began_ + kReminderPeriod;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLookPeriod, [this] { return is_over_; })) {
      const c10::intrusive_ptr<c10d::Store> store = store_;
      const bool is_due = steady_clock::now() >= next;
      if (is_due) next += kReminderPeriod;
      lock.unlock();
      // A store that fails here fails the meeting too, which says so.
      static_cast<void>(base::run_fenced([&] { look(store, is_due); }));
      lock.lock();
    }
  }

  void look(const c10::intrusive_ptr<c10d::Store>& store, bool is_due) {
    if (store && !saw_nccl_ && store->check({formatted("{0}/{0}//cuda//0", config_.group_name)})) {
      {
        const std::lock_guard lock(mutex_);
        saw_nccl_ = true;
      }
      base::log(
          LogLevel::error, kPart,
          "the peer uses nccl, and this side gloo: they will not meet. Set DUMPER_GRAFTER_BACKEND=gloo there (the "
          "Python twin's default is nccl)");
    }
    if (!is_due) return;
    const auto waited = std::chrono::duration_cast<seconds>(steady_clock::now() - began_).count();
    const auto limit = std::chrono::duration_cast<seconds>(config_.timeout).count();
    if (!store) {
      base::log(LogLevel::info, kPart, "waiting for baseline rank 0 to serve the store at {}:{} ({} s of {})",
                config_.master_address, config_.master_port, waited, limit);
      return;
    }
    std::vector<std::string> missing;
    for (int rank = 0; rank < sides_.size(); ++rank) {
      // Where gloo leaves its address.
      if (!store->check({formatted("{0}/{0}//cpu//0/{1}", config_.group_name, rank)})) {
        missing.push_back(name_of_rank(sides_, rank));
      }
    }
    if (missing.empty()) return;
    base::log(LogLevel::info, kPart,
              "waiting for {} ({} s of {}); a Python peer needs DUMPER_GRAFTER_BACKEND=gloo, and the same group name "
              "'{}'",
              fmt::join(missing, ", "), waited, limit, config_.group_name);
  }

  const GraftConfig& config_;
  const Sides sides_;
  const steady_clock::time_point began_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;                   // under mutex_
  c10::intrusive_ptr<c10d::Store> store_;  // under mutex_
  bool saw_nccl_ = false;                  // under mutex_; written by thread_ only
  std::thread thread_;
};

void require_own_size(const GraftConfig& config, const Participant& self) {
  const bool is_baseline = config.role == GraftRole::baseline;
  const int told = is_baseline ? config.baseline_world_size : config.target_world_size;
  if (told == self.world_size()) return;
  throw ConfigError(
      formatted("grafter_{}_world_size is {}, and this side runs with {} rank{}: they must be equal; set "
                "it on both sides",
                to_text(config.role), told, self.world_size(), self.world_size() == 1 ? "" : "s"));
}

// Which ranks are dbg of this version; throws where one was told other sizes.
bool are_all_dbg(distributed::TrackedStore& hello, const Sides& sides) {
  bool all = true;
  for (int rank = 0; rank < sides.size(); ++rank) {
    const auto said = hello.peek(std::to_string(rank));
    if (!said) {
      all = false;
      continue;
    }
    if (*said == hello_text(sides)) continue;
    const std::string own = hello_text(sides);
    // Of another version: the Python wire is what both speak.
    if (said->substr(0, said->find(' ')) != own.substr(0, own.find(' '))) {
      all = false;
      continue;
    }
    throw ConfigError(
        formatted("{} was told {} baseline and target ranks, and this rank {} and {}: set the same "
                  "grafter_baseline_world_size and grafter_target_world_size on both sides",
                  name_of_rank(sides, rank), said->substr(said->find(' ') + 1), sides.baseline, sides.target));
  }
  return all;
}

}  // namespace

void Meeting::leave() noexcept {
  if (group) group->close(milliseconds(0));
  group.reset();
  if (hello) hello->delete_written_keys();
  hello.reset();
}

Meeting meet(const GraftConfig& config, const Participant& self) {
  require_own_size(config, self);
  const auto deadline = steady_clock::now() + config.timeout;
  const Sides sides{config.baseline_world_size, config.target_world_size};
  const int rank = config.role == GraftRole::baseline ? self.rank() : sides.baseline + self.rank();
  base::log(LogLevel::info, kPart, "joins: role={} baseline={} target={} graft_rank={} store={}:{} backend={} name={}",
            to_text(config.role), sides.baseline, sides.target, rank, config.master_address, config.master_port,
            config.backend, config.group_name);
  Reminder reminder(config, sides);
  WorldOptions options;
  options.timeout = config.timeout;
  options.local_rank = self.local_rank();
  const TcpStoreAddress address{config.master_address, static_cast<std::uint16_t>(config.master_port), rank == 0};
  const World world = World::over_tcp(address, rank, sides.size(), options);
  reminder.look_into(world.store());

  Meeting meeting;
  meeting.hello =
      c10::make_intrusive<distributed::TrackedStore>(world.store(), formatted("dbg_graft/{}", config.group_name));
  try {
    if (!config.plain_wire) meeting.hello->put(std::to_string(rank), hello_text(sides));
    static_cast<void>(are_all_dbg(*meeting.hello, sides));  // before waiting for who will never come
    GroupOptions group;
    group.group_name = config.group_name;
    group.device_backend = config.backend;
    group.timeout = std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()));
    meeting.group = GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, config.group_name, {}}, group);
    meeting.is_all_dbg = are_all_dbg(*meeting.hello, sides);
  } catch (...) {
    meeting.leave();
    if (!reminder.saw_nccl()) throw;
    throw ConfigError(
        formatted("{}; the peer uses nccl: set DUMPER_GRAFTER_BACKEND=gloo there", base::describe_current_exception()));
  }
  base::log(LogLevel::info, kPart, "met all {} ranks as graft rank {}; the wire is {}", sides.size(), rank,
            meeting.is_all_dbg ? "dbg's own" : "Python's");
  return meeting;
}

}  // namespace dbg::graft
