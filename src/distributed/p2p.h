// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Messages between two members of a group, under a deadline and a signal that ends the wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "distributed/collective_call.h"
#include "distributed/group_half.h"

namespace dbg::distributed {

/// Messages of one tag arrive in the order they were sent; those of others pass them by. Python's default is 0.
inline constexpr int kDefaultTag = 0;

/// Sends `tensor`'s values to one member and returns when they are out of this rank's memory.
///
/// Both sides: the receiver receives under the same tag into a tensor of as many bytes.
/// Throws: ConfigError as collectives do, and for a message to oneself; CommError within the deadline and
/// kLongestOverrun: peer_lost when the other one dies, timeout, broken when `options.abort` is raised. After each of
/// these the group is broken: half a message may lie on the wire.
void send(GroupHalf& half, const at::Tensor& tensor, int dst_in_group, int tag = kDefaultTag,
          const CallOptions& options = {});

/// Receives into `tensor`, whatever its strides.
void recv(GroupHalf& half, const at::Tensor& tensor, int src_in_group, int tag = kDefaultTag,
          const CallOptions& options = {});

/// As part of a call that consists of several messages: the same, under that call's deadline and name.
void send_within(CollectiveCall& call, const at::Tensor& tensor, int dst_in_group, int tag);
void recv_within(CollectiveCall& call, const at::Tensor& tensor, int src_in_group, int tag);

/// Throws: ConfigError unless `peer_in_group` is another member's rank in the group.
void require_other_member(const GroupHalf& half, std::string_view operation, std::string_view role, int peer_in_group);

/// What to do with a message that is under way.
///
/// Several may wait at once, which collectives and `send` cannot: begin all, then wait for each. Waiting twice does
/// nothing.
/// Threads: one thread at a time.
class PendingMessage {
 public:
  PendingMessage(PendingMessage&&) noexcept;
  PendingMessage& operator=(PendingMessage&&) = delete;
  /// Waits for nothing: a message that nobody waited for is given up, and the group with it.
  ~PendingMessage();

  /// Returns when the values are out of this rank's memory, or in it.
  /// Throws: as `send`.
  void wait();

 private:
  friend PendingMessage begin_send(GroupHalf&, const at::Tensor&, int, int, const CallOptions&);
  friend PendingMessage begin_recv(GroupHalf&, const at::Tensor&, int, int, const CallOptions&);
  struct State;
  explicit PendingMessage(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Begins what `send` does. `tensor` must not change until the wait is over.
PendingMessage begin_send(GroupHalf& half, const at::Tensor& tensor, int dst_in_group, int tag = kDefaultTag,
                          const CallOptions& options = {});

/// Begins what `recv` does; the values are in `tensor` after the wait.
PendingMessage begin_recv(GroupHalf& half, const at::Tensor& tensor, int src_in_group, int tag = kDefaultTag,
                          const CallOptions& options = {});

}  // namespace dbg::distributed
