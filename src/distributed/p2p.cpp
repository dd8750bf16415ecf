// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Starts messages and waits for them.
#include "distributed/p2p.h"

#include <ATen/ATen.h>

#include <optional>
#include <string_view>
#include <utility>

#include "base/formatted.h"
#include "distributed/wire_tensor.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

void require_tag(const GroupHalf& half, std::string_view operation, int tag) {
  if (tag >= 0) return;
  throw ConfigError(formatted("{}: {} with tag {}; tags begin at 0", half.label, operation, tag));
}

CallShape shape_of_message(const at::Tensor& wire, int peer, bool is_send) {
  return {is_send ? wire.numel() : 0, is_send ? 0 : wire.numel(), wire.scalar_type(), peer};
}

}  // namespace

void require_other_member(const GroupHalf& half, std::string_view operation, std::string_view role, int peer_in_group) {
  require_member(half, operation, role, peer_in_group);
  if (peer_in_group != half.rank_in_group) return;
  throw ConfigError(
      formatted("{}: {} with {} {}, which is this rank itself", half.label, operation, role, peer_in_group));
}

void send_within(CollectiveCall& call, const at::Tensor& tensor, int dst_in_group, int tag) {
  const WireTensor carried(call, "send", tensor);
  std::vector<at::Tensor> tensors{carried.wire()};
  call.run(shape_of_message(carried.wire(), dst_in_group, true),
           [&](milliseconds) { return call.backend().send(tensors, dst_in_group, tag); });
}

void recv_within(CollectiveCall& call, const at::Tensor& tensor, int src_in_group, int tag) {
  const WireTensor carried = WireTensor::for_writing(call, "recv", tensor);
  std::vector<at::Tensor> tensors{carried.wire()};
  call.run(shape_of_message(carried.wire(), src_in_group, false),
           [&](milliseconds) { return call.backend().recv(tensors, src_in_group, tag); });
  carried.copy_back();
}

void send(GroupHalf& half, const at::Tensor& tensor, int dst_in_group, int tag, const CallOptions& options) {
  CollectiveCall call(half, "send", options);
  require_other_member(half, "send", "dst_in_group", dst_in_group);
  require_tag(half, "send", tag);
  send_within(call, tensor, dst_in_group, tag);
}

void recv(GroupHalf& half, const at::Tensor& tensor, int src_in_group, int tag, const CallOptions& options) {
  CollectiveCall call(half, "recv", options);
  require_other_member(half, "recv", "src_in_group", src_in_group);
  require_tag(half, "recv", tag);
  recv_within(call, tensor, src_in_group, tag);
}

struct PendingMessage::State {
  State(GroupHalf& half, std::string_view operation, const CallOptions& options, const at::Tensor& tensor,
        bool receives)
      : call(half, operation, options),
        carried(receives ? WireTensor::for_writing(call, operation, tensor) : WireTensor(call, operation, tensor)),
        is_recv(receives) {}

  CollectiveCall call;  // first: it says whether the group is there
  WireTensor carried;
  CallShape shape;
  c10::intrusive_ptr<c10d::Work> work;
  bool is_recv;
};

PendingMessage::PendingMessage(std::unique_ptr<State> state) : state_(std::move(state)) {}
PendingMessage::PendingMessage(PendingMessage&&) noexcept = default;

PendingMessage::~PendingMessage() {
  if (state_ && state_->work) state_->call.half().broken.set("a message that was begun was never waited for");
}

void PendingMessage::wait() {
  if (!state_ || !state_->work) return;
  // Whatever comes of it, it is waited for once.
  const c10::intrusive_ptr<c10d::Work> work = std::move(state_->work);
  state_->work.reset();
  state_->call.run(state_->shape, [&](milliseconds) { return work; });
  if (state_->is_recv) state_->carried.copy_back();
}

PendingMessage begin_send(GroupHalf& half, const at::Tensor& tensor, int dst_in_group, int tag,
                          const CallOptions& options) {
  require_other_member(half, "send", "dst_in_group", dst_in_group);
  require_tag(half, "send", tag);
  auto state = std::make_unique<PendingMessage::State>(half, "send", options, tensor, /*receives=*/false);
  state->shape = shape_of_message(state->carried.wire(), dst_in_group, true);
  state->call.run_starting(state->shape, [&] {
    std::vector<at::Tensor> tensors{state->carried.wire()};
    state->work = state->call.backend().send(tensors, dst_in_group, tag);
  });
  return PendingMessage(std::move(state));
}

PendingMessage begin_recv(GroupHalf& half, const at::Tensor& tensor, int src_in_group, int tag,
                          const CallOptions& options) {
  require_other_member(half, "recv", "src_in_group", src_in_group);
  require_tag(half, "recv", tag);
  auto state = std::make_unique<PendingMessage::State>(half, "recv", options, tensor, /*receives=*/true);
  state->shape = shape_of_message(state->carried.wire(), src_in_group, false);
  state->call.run_starting(state->shape, [&] {
    std::vector<at::Tensor> tensors{state->carried.wire()};
    state->work = state->call.backend().recv(tensors, src_in_group, tag);
  });
  return PendingMessage(std::move(state));
}

}  // namespace dbg::distributed
