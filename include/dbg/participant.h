// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Which rank is this? A participant is one rank's code: a process, or a thread of an engine that runs several ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dbg/export.h"

namespace dbg {

/// One rank's identity. Share it between the threads that work for that rank; what other parts keep for it (step,
/// dump index, context) lives as long as the object does.
/// Threads: immutable, safe to use from any thread.
class DBG_API Participant {
 public:
  /// Throws: ConfigError when `rank` is not in `[0, world_size)` or `local_rank` is negative.
  Participant(int rank, int world_size, int local_rank = 0);

  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  int rank() const noexcept { return rank_; }
  int world_size() const noexcept { return world_size_; }
  int local_rank() const noexcept { return local_rank_; }
  /// A number that no other participant of this process ever had.
  std::uint64_t id() const noexcept { return id_; }

 private:
  int rank_;
  int world_size_;
  int local_rank_;
  std::uint64_t id_;
};

/// Binds the calling thread to a participant, until the end of the scope; the outer binding is then restored.
/// Threads: ends on the thread that made it.
class DBG_API ParticipantScope {
 public:
  /// Keep the result: a scope without a name ends at once.
  /// Throws: ConfigError on nullptr.
  [[nodiscard]] explicit ParticipantScope(std::shared_ptr<const Participant> participant);
  ~ParticipantScope();
  ParticipantScope(const ParticipantScope&) = delete;
  ParticipantScope& operator=(const ParticipantScope&) = delete;

 private:
  std::shared_ptr<const Participant> outer_;
};

/// The participant of the calling thread. All unbound threads share the process's default, which comes from `RANK`,
/// `WORLD_SIZE` and `LOCAL_RANK` (as torchrun sets them), or is rank 0 of 1; values that make no sense are reported
/// once and then ignored together.
/// Never throws, never null: without memory for the default it is rank 0 of 1, until there is some.
DBG_API std::shared_ptr<const Participant> current_participant() noexcept;

/// Replaces the process's default, for unbound threads from here on (a program that learns its rank from MPI, say).
/// Throws: ConfigError on nullptr.
DBG_API void set_default_participant(std::shared_ptr<const Participant> participant);

}  // namespace dbg
