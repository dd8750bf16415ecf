// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Brings tensors into the backend's form, runs the call, and brings the results back.
#include "distributed/collectives.h"

#include <ATen/ATen.h>

#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "base/formatted.h"
#include "distributed/wire_tensor.h"

namespace dbg::distributed {
namespace {

using std::chrono::milliseconds;

c10d::ReduceOp backend_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return c10d::ReduceOp::SUM;
    case ReduceOp::product:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::bit_and:
      return c10d::ReduceOp::BAND;
    case ReduceOp::bit_or:
      return c10d::ReduceOp::BOR;
    case ReduceOp::bit_xor:
      return c10d::ReduceOp::BXOR;
  }
  throw ConfigError(formatted("there is no reduction number {}", static_cast<int>(op)));
}

// `dim` counted from the front.
std::int64_t require_dim(const GroupHalf& half, std::string_view operation, const at::Tensor& tensor,
                         std::int64_t dim) {
  const std::int64_t dims = tensor.dim();
  if (dims == 0) {
    throw ConfigError(
        formatted("{}: {} along a dimension of a tensor that has none; use the form without dim, or "
                  "give it one by reshape({{1}})",
                  half.label, operation));
  }
  if (dim < -dims || dim >= dims) {
    throw ConfigError(formatted("{}: {} along dimension {} of a tensor with {}: {} to {} are there", half.label,
                                operation, dim, dims, -dims, dims - 1));
  }
  return dim < 0 ? dim + dims : dim;
}

CallShape shape_of(const at::Tensor& tensor, std::int64_t out_factor, std::string terms) {
  return {tensor.numel(), tensor.numel() * out_factor, tensor.scalar_type(), -1, std::move(terms)};
}

std::string terms_of_reduction(const CollectiveCall& call, ReduceOp op, const at::Tensor& dense) {
  return call.is_compared() ? terms_of(call, formatted("({}) ", name_of(op)), dense) : "";
}

std::string terms_of_rooted(const CollectiveCall& call, std::string_view side, int root_in_group,
                            const at::Tensor& dense) {
  return call.is_compared() ? terms_of(call, formatted("({} {}) ", side, root_in_group), dense) : "";
}

WireReduction require_reduction(CollectiveCall& call, std::string_view operation, const at::Tensor& dense,
                                ReduceOp op) {
  WireReduction reduction = wire_reduction(call.half(), operation, dense, op);
  if (!reduction.wire.defined()) {
    call.fail(CommErrorKind::unsupported, formatted("backends do not reduce {}", base::dtype_name(dense.scalar_type())),
              "convert the tensor to a dtype with arithmetic first (int32, float32)");
  }
  return reduction;
}

void run_all_reduce(CollectiveCall& call, const WireReduction& reduction, std::string terms) {
  std::vector<at::Tensor> tensors{reduction.wire};
  call.run(shape_of(reduction.wire, 1, std::move(terms)), [&](milliseconds left) {
    c10d::AllreduceOptions options;
    options.reduceOp = backend_op(reduction.op);
    options.timeout = left;
    return call.backend().allreduce(tensors, options);
  });
}

void divide_if_average(const GroupHalf& half, ReduceOp op, const at::Tensor& dense) {
  if (op != ReduceOp::average) return;
  const at::NoGradGuard no_grad;
  dense.div_(half.size());
}

// Room for one dense tensor of each member, in one block: `[size, ...]`.
at::Tensor room_for_all(const GroupHalf& half, const at::Tensor& dense) {
  std::vector<std::int64_t> sizes{half.size()};
  sizes.insert(sizes.end(), dense.sizes().begin(), dense.sizes().end());
  return at::empty(sizes, dense.options());
}

std::vector<at::Tensor> parts_as_carried(const at::Tensor& block) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : block.unbind(0)) parts.push_back(as_carried(part));
  return parts;
}

// `[size, .., d, ..]` -> `[.., size * d, ..]`.
at::Tensor join_along(const at::Tensor& block, std::int64_t dim) {
  std::vector<std::int64_t> sizes(block.sizes().begin() + 1, block.sizes().end());
  sizes[static_cast<std::size_t>(dim)] *= block.size(0);
  return block.movedim(0, dim).reshape(sizes);
}

at::Tensor gather_block(CollectiveCall& call, const WireTensor& tensor) {
  GroupHalf& half = call.half();
  at::Tensor block = room_for_all(half, tensor.dense());
  std::vector<std::vector<at::Tensor>> outputs{parts_as_carried(block)};
  std::vector<at::Tensor> inputs{tensor.wire()};
  call.run(shape_of(tensor.wire(), half.size(), terms_of(call, "", tensor.dense())), [&](milliseconds left) {
    c10d::AllgatherOptions options;
    options.timeout = left;
    return call.backend().allgather(outputs, inputs, options);
  });
  return block;
}

// Undefined on all but the member `dst_in_group`.
at::Tensor gather_block_at(CollectiveCall& call, const WireTensor& tensor, int dst_in_group) {
  GroupHalf& half = call.half();
  at::Tensor block;
  std::vector<std::vector<at::Tensor>> outputs;
  if (half.rank_in_group == dst_in_group) {
    block = room_for_all(half, tensor.dense());
    outputs.push_back(parts_as_carried(block));
  }
  std::vector<at::Tensor> inputs{tensor.wire()};
  call.run(shape_of(tensor.wire(), block.defined() ? half.size() : 0,
                    terms_of_rooted(call, "to", dst_in_group, tensor.dense())),
           [&](milliseconds left) {
             c10d::GatherOptions options;
             options.rootRank = dst_in_group;
             options.timeout = left;
             return call.backend().gather(outputs, inputs, options);
           });
  return block;
}

}  // namespace

void all_reduce(GroupHalf& half, const at::Tensor& tensor, ReduceOp op, const CallOptions& options) {
  CollectiveCall call(half, "all_reduce", options);
  const WireTensor carried = WireTensor::for_writing(call, "all_reduce", tensor);
  run_all_reduce(call, require_reduction(call, "all_reduce", carried.dense(), op),
                 terms_of_reduction(call, op, carried.dense()));
  divide_if_average(half, op, carried.dense());
  carried.copy_back();
}

at::Tensor all_gather(GroupHalf& half, const at::Tensor& tensor, std::int64_t dim, const CallOptions& options) {
  CollectiveCall call(half, "all_gather", options);
  const WireTensor carried(call, "all_gather", tensor);
  const std::int64_t along = require_dim(half, "all_gather", tensor, dim);
  return join_along(gather_block(call, carried), along).to(tensor.device());
}

std::vector<at::Tensor> all_gather_list(GroupHalf& half, const at::Tensor& tensor, const CallOptions& options) {
  CollectiveCall call(half, "all_gather", options);
  return gather_block(call, WireTensor(call, "all_gather", tensor)).to(tensor.device()).unbind(0);
}

at::Tensor reduce_scatter(GroupHalf& half, const at::Tensor& tensor, ReduceOp op, std::int64_t dim,
                          const CallOptions& options) {
  CollectiveCall call(half, "reduce_scatter", options);
  const WireTensor carried(call, "reduce_scatter", tensor);
  const std::int64_t along = require_dim(half, "reduce_scatter", tensor, dim);
  if (tensor.size(along) % half.size() != 0) {
    throw ConfigError(formatted("{}: reduce_scatter of {} elements along dimension {} among {} ranks; it must divide",
                                half.label, tensor.size(along), dim, half.size()));
  }
  const at::Tensor front = carried.dense().movedim(along, 0).contiguous();
  // Reduced in place on gloo, so never in the caller's memory.
  const at::Tensor input = front.is_alias_of(tensor) ? front.clone() : front;
  std::vector<std::int64_t> part_sizes = front.sizes().vec();
  part_sizes[0] /= half.size();
  at::Tensor part = at::empty(part_sizes, front.options());
  const WireReduction whole = require_reduction(call, "reduce_scatter", input, op);
  std::string terms = terms_of_reduction(call, op, input);
  if (call.is_on_gloo()) {
    // gloo's own, where it has one, is an all_reduce that forgets the operation and the deadline.
    run_all_reduce(call, whole, std::move(terms));
    part.copy_(input.narrow(0, part_sizes[0] * half.rank_in_group, part_sizes[0]));
  } else {
    at::Tensor wire_in = whole.wire;
    at::Tensor wire_out = wire_reduction(half, "reduce_scatter", part, op).wire;
    call.run({wire_in.numel(), wire_out.numel(), wire_in.scalar_type(), -1, std::move(terms)}, [&](milliseconds left) {
      c10d::ReduceScatterOptions to_backend;
      to_backend.reduceOp = backend_op(whole.op);
      to_backend.timeout = left;
      return call.backend()._reduce_scatter_base(wire_out, wire_in, to_backend);
    });
  }
  divide_if_average(half, op, part);
  return part.movedim(0, along).contiguous().to(tensor.device());
}

at::Tensor gather(GroupHalf& half, const at::Tensor& tensor, int dst_in_group, std::int64_t dim,
                  const CallOptions& options) {
  CollectiveCall call(half, "gather", options);
  require_member(half, "gather", "dst_in_group", dst_in_group);
  const WireTensor carried(call, "gather", tensor);
  const std::int64_t along = require_dim(half, "gather", tensor, dim);
  const at::Tensor block = gather_block_at(call, carried, dst_in_group);
  return block.defined() ? join_along(block, along).to(tensor.device()) : block;
}

std::vector<at::Tensor> gather_list(GroupHalf& half, const at::Tensor& tensor, int dst_in_group,
                                    const CallOptions& options) {
  CollectiveCall call(half, "gather", options);
  require_member(half, "gather", "dst_in_group", dst_in_group);
  const at::Tensor block = gather_block_at(call, WireTensor(call, "gather", tensor), dst_in_group);
  return block.defined() ? block.to(tensor.device()).unbind(0) : std::vector<at::Tensor>();
}

void broadcast(GroupHalf& half, const at::Tensor& tensor, int src_in_group, const CallOptions& options) {
  CollectiveCall call(half, "broadcast", options);
  require_member(half, "broadcast", "src_in_group", src_in_group);
  const bool is_source = half.rank_in_group == src_in_group;
  const WireTensor carried =
      is_source ? WireTensor(call, "broadcast", tensor) : WireTensor::for_writing(call, "broadcast", tensor);
  std::vector<at::Tensor> tensors{carried.wire()};
  call.run(shape_of(carried.wire(), 1, terms_of_rooted(call, "from", src_in_group, carried.dense())),
           [&](milliseconds left) {
             c10d::BroadcastOptions to_backend;
             to_backend.rootRank = src_in_group;
             to_backend.timeout = left;
             return call.backend().broadcast(tensors, to_backend);
           });
  if (!is_source) carried.copy_back();
}

}  // namespace dbg::distributed
