// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Joins store and group, and says meanwhile who is waited for.
#include "graft/meeting.h"

#include <cxxabi.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/left_behind.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dbg/world.h"
#include "distributed/store_caller.h"
#include "distributed/tracked_store.h"
#include "distributed/world_state.h"
#include "graft/exchange.h"
#include "graft/hello.h"
#include "graft/part_name.h"
#include "graft/reminder.h"

namespace dbg::graft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookPeriod{500};
constexpr milliseconds kAbortPeriod{20};
constexpr milliseconds kConnectPeriod{50};
// How long a meeting that is to end, by the timeout or a close, may take for it; then it is left behind.
constexpr seconds kDesertBound{2};

milliseconds left_until(steady_clock::time_point deadline) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()));
}

void require_own_size(const GraftConfig& config, const Participant& self) {
  const bool is_baseline = config.role == GraftRole::baseline;
  const int told = is_baseline ? config.baseline_world_size : config.target_world_size;
  if (told == self.world_size()) return;
  throw ConfigError(
      formatted("grafter_{}_world_size is {}, and this side runs with {} rank{}: they must be equal; set "
                "it on both sides",
                to_text(config.role), told, self.world_size(), self.world_size() == 1 ? "" : "s"));
}

}  // namespace

void Meeting::leave() noexcept {
  if (group) group->close(milliseconds(0));
  group.reset();
}

namespace {

// Throws what is being handled. Of ranks that never came, those that left no word get advice of their own: a Python
// rank that runs and uses another backend leaves nothing where this side looks.
[[noreturn]] void rethrow_with_advice(distributed::TrackedStore& hello, const GraftConfig& config, const Sides& sides) {
  std::vector<std::string> silent;
  try {
    throw;
  } catch (const CommError& error) {
    if (error.kind() != CommErrorKind::peer_missing) throw;
    static_cast<void>(base::run_fenced([&] {
      const distributed::StoreDeadline in_time(steady_clock::now() + kLookPeriod,
                                               distributed::StoreDeadline::Missed::is_forgiven);
      for (const int rank : read_hellos(hello, config, sides).silent) silent.push_back(name_of_rank(sides, rank));
    }));
    if (silent.empty()) throw;
    CommFailure failure = error.failure();
    failure.advice = formatted(
        "See whether {} runs and comes to a dump that matches. If it does, and is Python, it uses another backend or "
        "group name: set DUMPER_GRAFTER_BACKEND=gloo there (the twin's default is nccl), and "
        "DUMPER_GRAFTER_GROUP_NAME={}",
        fmt::join(silent, ", "), config.group_name);
    throw CommError(std::move(failure));
  }
}

// A meeting on a thread of its own: whoever asked for it may be told to go while it waits.
class Attempt {
 public:
  void run(const GraftConfig& config, const std::shared_ptr<const Participant>& self) {
    const ParticipantScope bound(self);  // for the log
    try {
      Meeting met = meet_now(config, *self);
      {
        const std::lock_guard lock(mutex_);
        if (!is_deserted_) {
          made_ = std::move(met);
          return;
        }
      }
      met.leave();
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  /// Ends its waits, and leaves what has come of it.
  void desert(const std::string& cause) {
    std::shared_ptr<distributed::StoreCaller> store;
    std::optional<Meeting> made;
    {
      const std::lock_guard lock(mutex_);
      is_deserted_ = true;
      store = store_;
      made = std::exchange(made_, std::nullopt);
    }
    if (store) store->end(cause);
    if (made) made->leave();
  }

  /// What has come of it, once it is over.
  Meeting take() {
    if (error_) std::rethrow_exception(error_);
    const std::lock_guard lock(mutex_);
    return *std::exchange(made_, std::nullopt);
  }

 private:
  Meeting meet_now(const GraftConfig& config, const Participant& self);
  void wait_until_served(const GraftConfig& config, steady_clock::time_point deadline);
  void look_into(const c10::intrusive_ptr<c10d::Store>& store);

  bool is_deserted() {
    const std::lock_guard lock(mutex_);
    return is_deserted_;
  }

  std::mutex mutex_;
  bool is_deserted_ = false;                         // under mutex_
  std::shared_ptr<distributed::StoreCaller> store_;  // under mutex_
  std::optional<Meeting> made_;                      // under mutex_
  std::exception_ptr error_;                         // of the thread, until it is over
};

// Until somebody listens there, or this is to end.
void Attempt::wait_until_served(const GraftConfig& config, steady_clock::time_point deadline) {
  CommFailure failure;
  failure.kind = CommErrorKind::store_down;
  failure.operation = formatted("joining the TCPStore at {}:{}", config.master_address, config.master_port);
  failure.elapsed = config.timeout;
  failure.advice =
      "Does the baseline's rank 0 run, does it come to a dump that matches, and is it reachable from here?";
  do {
    if (is_deserted()) throw Error("nobody served the store yet");
    const auto look = std::min(deadline, steady_clock::now() + kLookPeriod);
    const auto reason = distributed::why_no_connection(config.master_address, config.master_port, look);
    if (!reason) return;
    failure.cause = *reason;
    std::this_thread::sleep_for(kConnectPeriod);
  } while (steady_clock::now() < deadline);
  throw CommError(std::move(failure));
}

void Attempt::look_into(const c10::intrusive_ptr<c10d::Store>& store) {
  auto caller = distributed::StoreCaller::of(store);
  const std::lock_guard lock(mutex_);
  if (is_deserted_) throw Error("the others had not come yet");
  store_ = std::move(caller);
}

Meeting Attempt::meet_now(const GraftConfig& config, const Participant& self) {
  require_own_size(config, self);
  const auto deadline = steady_clock::now() + config.timeout;
  const Sides sides{config.baseline_world_size, config.target_world_size};
  const int rank = config.role == GraftRole::baseline ? self.rank() : sides.baseline + self.rank();
  base::log(LogLevel::info, kPart, "joins: role={} baseline={} target={} graft_rank={} store={}:{} backend={} name={}",
            to_text(config.role), sides.baseline, sides.target, rank, config.master_address, config.master_port,
            config.backend, config.group_name);
  Reminder reminder(config, sides);
  WorldOptions options;
  options.local_rank = self.local_rank();
  const TcpStoreAddress address{config.master_address, static_cast<std::uint16_t>(config.master_port), rank == 0};
  if (!address.is_server) wait_until_served(config, deadline);
  options.timeout = left_until(deadline);
  const World world = World::over_tcp(address, rank, sides.size(), options);
  look_into(world.store());
  reminder.look_into(world.store());

  Meeting meeting;
  const auto hello = hello_store(world.store(), config.group_name);
  try {
    const distributed::StoreDeadline in_time(deadline + milliseconds(500));
    say_hello(*hello, config, sides, rank);
    static_cast<void>(read_hellos(*hello, config, sides));  // before waiting for who will never come
    GroupOptions group;
    group.group_name = config.group_name;
    group.device_backend = config.backend;
    group.timeout = left_until(deadline);
    meeting.group = GroupCoordinator::join_python(world, {PythonGroup::Kind::custom, config.group_name, {}}, group);
    const Hellos hellos = read_hellos(*hello, config, sides);
    meeting.is_all_dbg = hellos.are_all_dbg;
    meeting.max_bytes = hellos.max_bytes;
  } catch (...) {
    meeting.leave();
    if (!reminder.saw_nccl()) rethrow_with_advice(*hello, config, sides);
    throw ConfigError(
        formatted("{}; the peer uses nccl: set DUMPER_GRAFTER_BACKEND=gloo there", base::describe_current_exception()));
  }
  base::log(LogLevel::info, kPart, "met all {} ranks as graft rank {}; the wire is {}", sides.size(), rank,
            meeting.is_all_dbg ? "dbg's own" : "Python's");
  return meeting;
}

}  // namespace

Meeting meet(const std::shared_ptr<const GraftConfig>& config, const std::shared_ptr<const Participant>& self,
             const distributed::AbortSignal& abort) {
  const auto latest = steady_clock::now() + config->timeout + kDesertBound;
  const auto attempt = std::make_shared<Attempt>();
  std::promise<void> over;
  const std::future<void> is_over = over.get_future();
  base::LeftThread thread(std::thread([attempt, config, self, over = std::move(over)]() mutable {
    attempt->run(*config, self);
    over.set_value();
  }));
  while (is_over.wait_for(kAbortPeriod) != std::future_status::ready) {
    if (steady_clock::now() > latest) {
      // Its own deadlines don't reach everywhere: a name may be looked up for as long as the resolver likes.
      attempt->desert("it took too long");
      throw Error(
          formatted("the meeting is not over {} s after it was to be: is a name looked up in vain on this host (getent "
                    "hosts {}), or is the machine too busy?",
                    kDesertBound.count(), config->master_address));
    }
    const auto cause = abort.cause();
    if (!cause) continue;
    attempt->desert(*cause);
    if (is_over.wait_for(kDesertBound) == std::future_status::ready) thread.join();
    throw Error(formatted("the other ranks were not met: {}", *cause));
  }
  thread.join();
  return attempt->take();
}

}  // namespace dbg::graft
