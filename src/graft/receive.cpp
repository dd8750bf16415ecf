// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The receiving half of a graft after the wire.
#include "graft/receive.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/dtype.h"
#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "codec/tensor_bytes.h"
#include "dbg/error.h"
#include "dbg/tensor_info.h"
#include "graft/part_name.h"
#include "graft/transforms.h"
#include "graft/value_text.h"

namespace dbg::graft {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  return formatted("{}[{}]", base::dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

// Whether two indices may name the same element. Dimensions that are not nested one in the other (windows, as
// as_strided makes them) count as such.
bool may_overlap(const at::Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) == 0) return false;
    if (tensor.size(i) > 1) dims.emplace_back(tensor.stride(i), tensor.size(i));
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;  // of the dimensions so far
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

void check_result(const at::Tensor& made, const at::Tensor& target, std::string_view transform) {
  const std::string_view name = transform.empty() ? "identity" : transform;
  if (!made.defined()) throw ConfigError(formatted("the transform '{}' gave an undefined tensor", name));
  if (made.sizes() != target.sizes() || made.scalar_type() != target.scalar_type()) {
    throw ConfigError(
        formatted("the transform '{}' gave {} where the target is {}; {}", name, shape_text(made), shape_text(target),
                  made.sizes() == target.sizes() ? "'cast' converts, or register a transform that does"
                                                 : "register a transform that gives the target's shape and dtype"));
  }
}

// The model's tensor may be a leaf, saved for backward, or made in inference mode: none of that may notice. Its data
// is written as Python's `.data` is, past autograd and its version counter.
void write_into(const at::Tensor& target, const at::Tensor& made) {
  const at::NoGradGuard no_grad;
  const c10::InferenceMode as_it_was_made(target.is_inference());
  const at::Tensor data = target.is_inference() ? target : target.variable_data();
  data.copy_(made);
}

GraftInput input_of(ReceiveRequest& request, const at::Tensor& target, bool is_built_in) {
  GraftInput input{request.tags, {}, {}, is_built_in ? target.detach() : target.detach().clone()};
  input.direction = request.direction;
  input.receiver_rank = request.receiver_rank;
  input.receiver_count = request.receiver_count;
  input.target_place = request.place;
  for (Contribution& sender : request.senders) {
    input.received.push_back(sender.tensor.to(target.device()));
    input.received_extras.push_back(sender.extras);
    input.received_places.push_back(sender.place);
  }
  return input;
}

std::optional<ReceiveResult> why_not_used(const ReceiveRequest& request) {
  if (std::string why = why_not_writable(request.target); !why.empty()) {
    return ReceiveResult{ReceiveOutcome::empty, formatted("the value here is {}", why)};
  }
  for (std::size_t i = 0; i < request.senders.size(); ++i) {
    const Contribution& sender = request.senders[i];
    if (sender.state == ContributionState::value) continue;
    const bool is_refused = sender.state == ContributionState::refused;
    return ReceiveResult{is_refused ? ReceiveOutcome::refused : ReceiveOutcome::empty,
                         formatted("sender {} {}: {}", i, is_refused ? "is refused" : "gives nothing", sender.reason)};
  }
  return std::nullopt;
}

void log_graft(const ReceiveRequest& request, const GraftInput& input, const at::Tensor& target,
               const at::Tensor& made) {
  if (!base::log_enabled(LogLevel::info)) return;
  // A device's tensors come to the host once, for all that is said of them.
  const auto on_host = [](const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : dense_on_host(tensor); };
  const at::Tensor before = on_host(target);
  const at::Tensor after = on_host(made);
  base::log(LogLevel::info, kPart,
            "recv role={} dir={} tags={} n_senders={} sender_extras={} before={{{}}} to_override={{{}}} "
            "difference={{{}}}",
            to_text(request.config.role), to_text(request.direction), value_text(request.tags), request.senders.size(),
            value_text(input.received_extras), info_text(before, target.device()), info_text(after, target.device()),
            difference_text(diff(before, after)));
}

void replace(ReceiveRequest& request) {
  const NamedTransform transform = find_transform(request.config.transform);
  const at::Tensor& target = request.target.toTensor();
  const at::NoGradGuard no_grad;
  const GraftInput input = input_of(request, target, transform.is_built_in);
  const at::Tensor result = transform.apply(input);
  check_result(result, target, request.config.transform);
  const at::Tensor made = result.detach().to(target.device());
  log_graft(request, input, target, made);
  write_into(target, made);
}

}  // namespace

std::string difference_text(const TensorDiff& difference) {
  if (!difference.compared) return formatted("not compared: {}", difference.note);
  return formatted("rel_diff={:.6g} max_abs={:.6g} mean_abs={:.6g}", difference.rel_diff, difference.max_abs,
                   difference.mean_abs);
}

std::string why_not_writable(const c10::IValue& value) {
  if (!value.isTensor()) return formatted("of type {}, which is no tensor", value.tagKind());
  const at::Tensor& tensor = value.toTensor();
  if (auto refusal = codec::refusal_of_tensor(tensor)) return *std::move(refusal);
  if (tensor.layout() != c10::kStrided) return "a tensor that is not strided";
  if (tensor._is_zerotensor()) return "a tensor of zeros without memory";
  if (may_overlap(tensor)) {
    return formatted("a tensor whose elements share memory (expanded, or a window: sizes [{}], strides [{}])",
                     fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", "));
  }
  return {};
}

ReceiveResult receive(ReceiveRequest request) {
  if (auto why = why_not_used(request)) return *std::move(why);
  if (auto cause = base::run_fenced([&] { replace(request); })) return {ReceiveOutcome::failed, *std::move(cause)};
  return {};
}

}  // namespace dbg::graft
