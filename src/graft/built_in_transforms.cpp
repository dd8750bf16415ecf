// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Identity, selection, average, joining and slicing, and the way over the whole tensor by dims.
#include "graft/built_in_transforms.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/dtype.h"
#include "base/formatted.h"
#include "dbg/dims.h"
#include "dbg/error.h"

namespace dbg::graft {
namespace {

struct BuiltIn {
  std::string_view name;  // as a user writes it
  std::string_view word;  // before the colon
  bool takes_number;
};

constexpr std::array<BuiltIn, 7> kBuiltIns{{
    {"identity", "identity", false},
    {"cast", "cast", false},
    {"select:N", "select", true},
    {"average", "average", false},
    {"concat:D", "concat", true},
    {"slice:D", "slice", true},
    {"dims", "dims", false},
}};

constexpr std::string_view kWayOut =
    "register a transform (register_graft_transform) and name it in DUMPER_GRAFTER_TRANSFORM";

const at::Tensor& only_of_rank(const GraftInput& input) {
  if (static_cast<int>(input.received.size()) != input.receiver_count) {
    throw ConfigError(
        formatted("identity by rank needs as many senders as receivers, and there are {} senders and {} "
                  "receivers; {}",
                  input.received.size(), input.receiver_count, kWayOut));
  }
  const at::Tensor& own = input.received[static_cast<std::size_t>(input.receiver_rank)];
  if (own.sizes() != input.target.sizes()) {
    throw ConfigError(
        formatted("identity by rank needs equal shapes, and sender {} has [{}] where the target has [{}]; "
                  "{}",
                  input.receiver_rank, fmt::join(own.sizes(), ", "), fmt::join(input.target.sizes(), ", "), kWayOut));
  }
  return own;
}

at::Tensor select(const GraftInput& input, std::int64_t sender) {
  if (sender < 0 || sender >= static_cast<std::int64_t>(input.received.size())) {
    throw ConfigError(formatted("select:{}: there are {} senders, counted from 0", sender, input.received.size()));
  }
  return input.received[static_cast<std::size_t>(sender)];
}

void require_same_shapes(const GraftInput& input, std::string_view name) {
  for (std::size_t sender = 1; sender < input.received.size(); ++sender) {
    if (input.received[sender].sizes() == input.received.front().sizes()) continue;
    throw ConfigError(formatted("{}: sender 0 has [{}] and sender {} has [{}]", name,
                                fmt::join(input.received.front().sizes(), ", "), sender,
                                fmt::join(input.received[sender].sizes(), ", ")));
  }
}

at::Tensor average(const GraftInput& input) {
  require_same_shapes(input, "average");
  const at::ScalarType dtype = input.received.front().scalar_type();
  const base::NumberKind kind = base::number_kind(dtype);
  if (kind != base::NumberKind::real && kind != base::NumberKind::complex) {
    throw ConfigError(formatted("average: of {}; it takes real and complex numbers", base::dtype_name(dtype)));
  }
  const at::ScalarType wide = kind == base::NumberKind::complex ? at::kComplexDouble : at::kDouble;
  at::Tensor sum = input.received.front().to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t sender = 1; sender < input.received.size(); ++sender) sum.add_(input.received[sender].to(wide));
  return sum.div_(static_cast<double>(input.received.size())).to(input.target.scalar_type());
}

std::int64_t dimension_of(const at::Tensor& tensor, std::int64_t dim, std::string_view name) {
  const std::int64_t positive = dim < 0 ? dim + tensor.dim() : dim;
  if (positive < 0 || positive >= tensor.dim()) {
    throw ConfigError(
        formatted("{}:{}: the tensor [{}] has no such dimension", name, dim, fmt::join(tensor.sizes(), ", ")));
  }
  return positive;
}

at::Tensor concat(const GraftInput& input, std::int64_t dim) {
  return at::cat(input.received, dimension_of(input.received.front(), dim, "concat"));
}

at::Tensor slice(const GraftInput& input, std::int64_t dim) {
  const at::Tensor& whole = input.received.front();
  const std::int64_t at_dim = dimension_of(whole, dim, "slice");
  if (whole.size(at_dim) % input.receiver_count != 0) {
    throw ConfigError(formatted("slice:{}: {} elements can't be shared evenly by {} receivers", dim, whole.size(at_dim),
                                input.receiver_count));
  }
  const std::int64_t part = whole.size(at_dim) / input.receiver_count;
  return whole.narrow(at_dim, part * input.receiver_rank, part);
}

Dims dims_of(const GraftPlace& place, const std::string& whose) {
  if (place.dims.empty()) {
    throw ConfigError(
        formatted("dims: {} says nothing of its axes; give DumpOptions::dims, or `dims` in the extras", whose));
  }
  return Dims::parse(place.dims);
}

at::Tensor by_dims(const GraftInput& input) {
  const Dims dims = dims_of(input.received_places.front(), "sender 0");
  std::vector<Shard> shards;
  for (std::size_t sender = 0; sender < input.received.size(); ++sender) {
    const GraftPlace& place = input.received_places[sender];
    if (!(dims_of(place, formatted("sender {}", sender)) == dims)) {
      throw ConfigError(formatted("dims: sender 0 says '{}' and sender {} says '{}'",
                                  input.received_places.front().dims, sender, place.dims));
    }
    shards.push_back({input.received[sender], place.parallel, static_cast<int>(sender)});
  }
  const Unsharded whole = unshard(dims, shards);
  const Dims own = input.target_place.dims.empty() && input.receiver_count == 1
                       ? Dims::parse(input.received_places.front().dims)
                       : dims_of(input.target_place, "this receiver");
  return shard_of(own, whole.tensor, input.target_place.parallel);
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string_view> built_in_names() {
  std::vector<std::string_view> names;
  for (const BuiltIn& one : kBuiltIns) names.push_back(one.name);
  return names;
}

bool is_built_in(std::string_view word) noexcept {
  return std::any_of(kBuiltIns.begin(), kBuiltIns.end(), [word](const BuiltIn& one) { return one.word == word; });
}

GraftTransform make_built_in(const std::string& name) {
  const std::size_t colon = name.find(':');
  const std::string word = name.empty() ? "identity" : name.substr(0, colon);
  const std::string argument = colon == std::string::npos ? "" : name.substr(colon + 1);
  const auto known =
      std::find_if(kBuiltIns.begin(), kBuiltIns.end(), [&](const BuiltIn& one) { return one.word == word; });
  const std::optional<std::int64_t> number = number_in(argument);
  if (known == kBuiltIns.end() || known->takes_number != number.has_value() ||
      (!known->takes_number && colon != std::string::npos)) {
    throw ConfigError(formatted("'{}' is no transform of ours: there are {}, where N is a sender and D a dimension",
                                name, fmt::join(built_in_names(), ", ")));
  }
  if (word == "identity") return only_of_rank;
  if (word == "cast") {
    return [](const GraftInput& input) { return only_of_rank(input).to(input.target.scalar_type()); };
  }
  if (word == "select") return [n = *number](const GraftInput& input) { return select(input, n); };
  if (word == "average") return average;
  if (word == "concat") return [d = *number](const GraftInput& input) { return concat(input, d); };
  if (word == "slice") return [d = *number](const GraftInput& input) { return slice(input, d); };
  return by_dims;
}

}  // namespace dbg::graft
