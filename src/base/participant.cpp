// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Binds threads to participants, and reads the process's default from the environment.
#include "dbg/participant.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/fork_lock.h"
#include "base/formatted.h"
#include "base/log.h"
#include "dbg/error.h"

namespace dbg {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Leaked on purpose: a program that ends inside a scope still logs from its exit handlers and static destructors, which
// run after those of the main thread's variables.
constinit thread_local base::Leaked<std::shared_ptr<const Participant>> bound;

struct Default {
  std::mutex mutex;
  std::shared_ptr<const Participant> participant;  // under `mutex`
  std::optional<Participant> without_memory;       // under `mutex`; stands in while there is none to make the other
};

constinit base::Leaked<Default> leaked_default;  // leaked on purpose: hooks may run while the process exits

std::mutex& default_mutex() noexcept {
  return leaked_default.value.mutex;
}

Default& process_default() noexcept {
  base::hold_over_forks<&default_mutex>();
  return leaked_default.value;
}

// The variable as a number; nullopt when unset or blank. `complaint` collects what is not a number.
std::optional<int> read_number(const char* variable, std::string& complaint) {
  const char* raw = std::getenv(variable);
  if (raw == nullptr) return std::nullopt;
  std::string_view text(raw);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
  int number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    complaint += formatted("{}{}='{}' is not a number", complaint.empty() ? "" : "; ", variable, raw);
    return std::nullopt;
  }
  return number;
}

struct FromEnvironment {
  std::shared_ptr<const Participant> participant;
  std::string complaint;
};

FromEnvironment participant_from_environment() {
  FromEnvironment result;
  const int rank = read_number("RANK", result.complaint).value_or(0);
  const int world_size = read_number("WORLD_SIZE", result.complaint).value_or(1);
  const int local_rank = read_number("LOCAL_RANK", result.complaint).value_or(0);
  if (result.complaint.empty()) {
    try {
      result.participant = std::make_shared<const Participant>(rank, world_size, local_rank);
      return result;
    } catch (const ConfigError& error) {
      result.complaint = error.what();
    }
  }
  result.participant = std::make_shared<const Participant>(0, 1, 0);
  return result;
}

}  // namespace

Participant::Participant(int rank, int world_size, int local_rank)
    : rank_(rank), world_size_(world_size), local_rank_(local_rank), id_(next_id()) {
  if (world_size < 1 || rank < 0 || rank >= world_size || local_rank < 0) {
    throw ConfigError(formatted(
        "rank={}, world_size={}, local_rank={}: expected 0 <= rank < world_size and local_rank >= 0; check RANK, "
        "WORLD_SIZE and LOCAL_RANK, or what the program passes to Participant",
        rank, world_size, local_rank));
  }
}

ParticipantScope::ParticipantScope(std::shared_ptr<const Participant> participant) {
  if (!participant) throw ConfigError("ParticipantScope: the participant is null; pass the rank's own object");
  outer_ = std::exchange(bound.value, std::move(participant));
}

ParticipantScope::~ParticipantScope() {
  bound.value = std::move(outer_);
}

std::shared_ptr<const Participant> current_participant() noexcept {
  if (bound.value) return bound.value;
  Default& value = process_default();
  std::string complaint;
  std::shared_ptr<const Participant> result;
  {
    const std::lock_guard lock(value.mutex);
    if (!value.participant) {
      try {
        FromEnvironment read = participant_from_environment();
        value.participant = std::move(read.participant);
        complaint = std::move(read.complaint);
      } catch (...) {
        // Out of memory. The next call tries again; this one gets what takes none: a pointer that owns nothing.
        if (!value.without_memory) value.without_memory.emplace(0, 1, 0);
        return {std::shared_ptr<const Participant>(), &*value.without_memory};
      }
    }
    result = value.participant;
  }
  if (!complaint.empty()) {
    base::log(LogLevel::warning, "dbg",
              "{}; going on as rank 0 of 1. Set RANK, WORLD_SIZE and LOCAL_RANK as torchrun does, or bind the thread "
              "with ParticipantScope.",
              complaint);
  }
  return result;
}

void set_default_participant(std::shared_ptr<const Participant> participant) {
  if (!participant) throw ConfigError("set_default_participant: the participant is null; pass the process's own rank");
  Default& value = process_default();
  const std::lock_guard lock(value.mutex);
  value.participant.swap(participant);
}

}  // namespace dbg
