// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Runs one operation on a group: whether it may begin, how long it may take, and what its failure means.
#pragma once

#include <c10/util/FunctionRef.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "dbg/error.h"
#include "distributed/abort_signal.h"
#include "distributed/comm_cause.h"
#include "distributed/comms_record.h"
#include "distributed/group_half.h"

namespace dbg::distributed {

/// What every operation can be told.
struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  ///< nullopt: the group's
  AbortSignal* abort = nullptr;                                     ///< ends the wait early; not owned
};

/// How long past its deadline an operation may return: for the backend's own deadline to strike first, and for asking
/// the others who failed why.
inline constexpr std::chrono::milliseconds kLongestOverrun{1000};

/// One operation, of one message or of several under one deadline.
///
/// A timeout or a lost peer ends the group: gloo closes its connections then, and what comes later would fail with
/// "closed by peer". The half is marked broken with the first cause, and says that instead.
/// Threads: one thread at a time.
class CollectiveCall {
 public:
  using Start = c10::function_ref<c10::intrusive_ptr<c10d::Work>(std::chrono::milliseconds left)>;

  /// Begins the operation called `operation` in traces and errors.
  /// Throws: ConfigError for a timeout that is not positive; CommError: forked in a child of the process that made the
  /// group, broken when it broke or was closed.
  CollectiveCall(GroupHalf& half, std::string_view operation, const CallOptions& options = {});
  CollectiveCall(const CollectiveCall&) = delete;
  CollectiveCall& operator=(const CollectiveCall&) = delete;

  /// Starts one piece of work and waits for it. `start` gets what is left of the time, at least a millisecond.
  /// Throws: CommError, within the deadline and kLongestOverrun.
  void run(const CallShape& shape, Start start);

  /// Runs something that waits by itself, within the time it is given.
  void run_blocking(const CallShape& shape, c10::function_ref<void(std::chrono::milliseconds left)> body);

  /// Starts a message and leaves waiting for it to the caller. `start` waits for nothing.
  void run_starting(const CallShape& shape, c10::function_ref<void()> start);

  std::chrono::milliseconds left() const;
  GroupHalf& half() const noexcept { return half_; }
  /// What it goes to: the backend that was there when it began, whoever closes the group meanwhile.
  c10d::Backend& backend() const noexcept { return *backends_.backend; }
  bool is_on_gloo() const noexcept { return is_gloo_; }
  bool is_on_nccl() const noexcept { return is_nccl_; }
  /// Whether the members compare what they are about to do.
  bool is_compared() const noexcept { return backends_.checker != nullptr; }

  /// Throws the CommError of this call and leaves the group as it is: the wire is at the same place on all ranks.
  /// `peers` are global ranks.
  [[noreturn]] void fail(CommErrorKind kind, std::string cause, std::string advice = {}, std::vector<int> peers = {});

  /// Marks the group broken, tells the others, and throws.
  [[noreturn]] void break_group(CommErrorKind kind, std::string cause, std::string advice = {},
                                std::vector<int> peers = {});

 private:
  void start_and_wait(const CallShape& shape, Start start);
  void wait_for_end(Start start, bool is_gloo);
  void compare(const std::string& terms);
  void wait(c10d::Work& work);
  void wait_for_message(c10d::Work& work);
  void wait_for_completion(c10d::Work& work);
  void throw_if_aborted();
  void throw_if_others_failed();
  [[noreturn]] void translate_current_exception();
  std::chrono::milliseconds elapsed() const;

  GroupHalf& half_;
  GroupHalf::Backends backends_;
  std::string operation_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::milliseconds timeout_;
  std::uint64_t sequence_;
  AbortSignal* abort_;
  int peer_ = -1;
  bool is_gloo_;
  bool is_wrapped_;  // torch's comparing wrapper, which waits inside each call
  bool is_nccl_;     // which records itself
};

/// The global ranks of members given by their rank in the group.
std::vector<int> global_ranks(const GroupHalf& half, const std::vector<int>& ranks_in_group);

/// Throws: ConfigError unless `rank_in_group` is a rank of this group; `role` names the argument.
void require_member(const GroupHalf& half, std::string_view operation, std::string_view role, int rank_in_group);

}  // namespace dbg::distributed
