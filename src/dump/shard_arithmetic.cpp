// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Takes tensors apart into shards and puts them together again, as dims says.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/formatted.h"
#include "dbg/dims.h"
#include "dbg/error.h"

namespace dbg {
namespace {

using Ranges = std::vector<IndexRange>;

constexpr std::string_view kPackedTokens = "t";
constexpr std::string_view kSequence = "s";
constexpr std::string_view kContext = "cp";
constexpr std::string_view kRecompute = "recompute_pseudo";

std::string name_of(const Dim& dim) {
  return dim.is_squeeze() ? "1" : formatted("{}", fmt::join(dim.names, "*"));
}

// The axis when it does something: known and larger than 1.
ParallelAxis active_axis(const ParallelState& place, std::string_view name) {
  return place.find(name).value_or(ParallelAxis{std::string(name), 0, 1});
}

void append(Ranges& ranges, IndexRange range) {
  if (range.begin == range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

std::int64_t length_of(const Ranges& ranges) {
  std::int64_t length = 0;
  for (const IndexRange& range : ranges) length += range.end - range.begin;
  return length;
}

// Appends the part [begin, end) of the sequence that `held` is, seen as one run of indices.
void append_part(Ranges& to, const Ranges& held, std::int64_t begin, std::int64_t end) {
  for (const IndexRange& range : held) {
    const std::int64_t size = range.end - range.begin;
    const std::int64_t first = std::max<std::int64_t>(begin, 0);
    const std::int64_t last = std::min(end, size);
    if (first < last) append(to, {range.begin + first, range.begin + last});
    begin -= size;
    end -= size;
  }
}

// One axis at work on one dimension, for one rank.
class AxisSplit {
 public:
  AxisSplit(const Dim& dim, const DimShard& shard, const ParallelAxis& axis)
      : dim_(dim), shard_(shard), axis_(axis), pieces_each_(shard.is_zigzag ? 2 : 1) {}

  // Appends what the rank holds of the part [begin, end) of `held`.
  void append_share(Ranges& to, const Ranges& held, std::int64_t begin, std::int64_t end, bool as_zigzag) const {
    const int pieces_each = as_zigzag ? pieces_each_ : 1;
    const std::int64_t pieces = std::int64_t{axis_.size} * pieces_each;
    if ((end - begin) % pieces != 0) {
      throw ConfigError(formatted("dimension {}: {} indices can't be divided evenly into {} pieces ({} of size {}{})",
                                  name_of(dim_), end - begin, pieces, axis_.name, axis_.size,
                                  pieces_each == 2 ? ", zigzag" : ""));
    }
    const std::int64_t size = (end - begin) / pieces;
    // A summand in zigzag order is the whole, in the order in which all ranks' shares lie one behind the other.
    const int first = shard_.is_partial ? 0 : axis_.rank;
    const int last = shard_.is_partial ? axis_.size - 1 : axis_.rank;
    for (std::int64_t rank = first; rank <= last; ++rank) {
      append_part(to, held, begin + rank * size, begin + (rank + 1) * size);
      if (pieces_each == 2) append_part(to, held, begin + (pieces - 1 - rank) * size, begin + (pieces - rank) * size);
    }
  }

 private:
  const Dim& dim_;
  const DimShard& shard_;
  const ParallelAxis& axis_;
  int pieces_each_;
};

void split_packed(const AxisSplit& split, const Ranges& held, const std::vector<std::int64_t>& lengths, Ranges& to) {
  const std::int64_t total = length_of(held);
  const std::int64_t packed = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (packed > total || std::any_of(lengths.begin(), lengths.end(), [](std::int64_t length) { return length < 0; })) {
    throw ConfigError(
        formatted("sequence lengths [{}] do not fit a dimension t of {}", fmt::join(lengths, ", "), total));
  }
  std::int64_t at = 0;
  for (const std::int64_t length : lengths) {
    split.append_share(to, held, at, at + length, /*as_zigzag=*/true);
    at += length;
  }
  split.append_share(to, held, at, total, /*as_zigzag=*/false);
}

Ranges ranges_of_dimension(const Dim& dim, std::int64_t size, const ParallelState& place, const ShardOptions& options) {
  Ranges held;
  append(held, {0, size});
  for (const DimShard& shard : dim.shards) {
    const ParallelAxis axis = active_axis(place, shard.axis);
    if (axis.size == 1 || (shard.is_partial && !shard.is_zigzag)) continue;
    const bool is_packed = dim.names == std::vector<std::string>{std::string(kPackedTokens)};
    const bool is_sequence = dim.names == std::vector<std::string>{std::string(kSequence)};
    const bool splits_sequences = is_packed && shard.axis == kContext && !options.sequence_lengths.empty();
    if (shard.is_zigzag && !is_sequence && !splits_sequences) {
      throw ConfigError(formatted(
          "dimension {}: zigzag over {} is known for a dimension s, and for t shared by cp when the lengths of its "
          "sequences are given",
          name_of(dim), shard.axis));
    }
    if (splits_sequences && &shard != &dim.shards.front()) {
      throw ConfigError("dimension t: cp must be its first axis to split each sequence by itself");
    }
    Ranges share;
    const AxisSplit split(dim, shard, axis);
    if (splits_sequences) {
      split_packed(split, held, options.sequence_lengths, share);
    } else {
      split.append_share(share, held, 0, length_of(held), /*as_zigzag=*/true);
    }
    held = std::move(share);
  }
  return held;
}

void require_dimensions(const Dims& dims, const std::vector<std::int64_t>& shape, const std::string& whose) {
  if (shape.size() != dims.dims().size()) {
    throw ConfigError(formatted("{}: {} dimensions (shape [{}]), and dims names {}; correct dims, or the tensor", whose,
                                shape.size(), fmt::join(shape, ", "), dims.dims().size()));
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (dims.dims()[i].is_squeeze() && shape[i] != 1) {
      throw ConfigError(formatted("{}: dimension {} is `1` in dims and {} in shape [{}]", whose, i, shape[i],
                                  fmt::join(shape, ", ")));
    }
  }
}

// The given ranges of one dimension, one behind the other.
at::Tensor take(const at::Tensor& tensor, std::int64_t dim, const Ranges& ranges) {
  if (ranges.empty()) return tensor.narrow(dim, 0, 0);
  std::vector<at::Tensor> parts;
  for (const IndexRange& range : ranges) parts.push_back(tensor.narrow(dim, range.begin, range.end - range.begin));
  return parts.size() == 1 ? parts.front() : at::cat(parts, dim);
}

// Calls `code(place in the shard, place in the whole)` for each block of a shard that is one block in the whole.
template <class Code>
void for_each_block(const at::Tensor& shard, const at::Tensor& whole, const std::vector<Ranges>& ranges,
                    std::size_t dim, const Code& code) {
  if (dim == ranges.size()) {
    code(shard, whole);
    return;
  }
  const auto at_dim = static_cast<std::int64_t>(dim);
  std::int64_t at = 0;
  for (const IndexRange& range : ranges[dim]) {
    const std::int64_t size = range.end - range.begin;
    for_each_block(shard.narrow(at_dim, at, size), whole.narrow(at_dim, range.begin, size), ranges, dim + 1, code);
    at += size;
  }
}

bool is_summed(const Dims& dims, const ParallelState& place) {
  for (const Dim& dim : dims.dims()) {
    for (const DimShard& shard : dim.shards) {
      if (shard.is_partial && active_axis(place, shard.axis).size > 1) return true;
    }
  }
  return false;
}

// What dims says of the axes, against what the shards say of them.
class Assembly {
 public:
  Assembly(const Dims& dims, const std::vector<Shard>& shards, const ShardOptions& options)
      : dims_(dims), options_(options) {
    if (shards.empty()) throw ConfigError("no shards to put together");
    for (const Shard& shard : shards) {
      if (!shard.tensor.defined()) throw ConfigError(formatted("rank {}: the tensor is undefined", shard.rank));
      shards_.push_back(&shard);
    }
    for (const Dim& dim : dims.dims()) {
      for (const DimShard& shard : dim.shards) sharded_.push_back(shard.axis);
    }
    replicated_ = dims.replicated_axes();
    if (std::find(sharded_.begin(), sharded_.end(), kRecompute) == sharded_.end() &&
        std::find(replicated_.begin(), replicated_.end(), kRecompute) == replicated_.end()) {
      replicated_.emplace_back(kRecompute);
    }
  }

  Unsharded run() {
    leave_out_idle_dp_ranks();
    find_sizes();
    require_complete();
    Unsharded result;
    for (const std::string& axis : replicated_) {
      if (sizes_.count(axis) > 0) keep_one_replica(axis, result.replica_differences);
    }
    require_equal_forms();
    result.tensor = put_together();
    return result;
  }

 private:
  using Place = std::vector<int>;  // ranks in the declared active axes, in the order of `sizes_`

  void leave_out_idle_dp_ranks() {
    const std::string& dp = dims_.dp_axis();
    if (is_declared(dp)) return;
    const auto is_idle = [](const Shard* shard) { return shard->tensor.numel() == 0; };
    const auto stands_in = [&dp](const Shard* shard) { return active_axis(shard->place, dp); };
    std::map<int, bool> has_data;
    for (const Shard* shard : shards_) has_data[stands_in(shard).rank] |= !is_idle(shard);
    if (std::none_of(has_data.begin(), has_data.end(), [](const auto& one) { return one.second; })) return;
    shards_.erase(std::remove_if(shards_.begin(), shards_.end(),
                                 [&](const Shard* shard) { return !has_data[stands_in(shard).rank]; }),
                  shards_.end());
  }

  bool is_declared(const std::string& axis) const {
    return std::find(sharded_.begin(), sharded_.end(), axis) != sharded_.end() ||
           std::find(replicated_.begin(), replicated_.end(), axis) != replicated_.end();
  }

  // The declared axes that are larger than 1, and on which all shards agree.
  void find_sizes() {
    for (const auto* names : {&sharded_, &replicated_}) {
      for (const std::string& name : *names) {
        for (const Shard* shard : shards_) {
          const int size = active_axis(shard->place, name).size;
          const int expected = active_axis(shards_.front()->place, name).size;
          if (size != expected) {
            throw ConfigError(formatted("axis {}: its size is {} on rank {} and {} on rank {}", name, expected,
                                        shards_.front()->rank, size, shard->rank));
          }
        }
        if (const int size = active_axis(shards_.front()->place, name).size; size > 1) sizes_[name] = size;
      }
    }
  }

  Place place_of(const Shard& shard) const {
    Place place;
    for (const auto& [name, size] : sizes_) place.push_back(active_axis(shard.place, name).rank);
    return place;
  }

  std::string text_of(const Place& place) const {
    if (place.empty()) return "the whole tensor";
    std::string text;
    for (const auto& [name, size] : sizes_) {
      const std::size_t at = static_cast<std::size_t>(std::distance(sizes_.begin(), sizes_.find(name)));
      text += formatted("{}{} {} of {}", text.empty() ? "" : ", ", name, place[at], size);
    }
    return text;
  }

  // Each place is held once: no rank is missing, and none that dims can't tell from another.
  void require_complete() const {
    std::map<Place, const Shard*> holders;
    for (const Shard* shard : shards_) {
      const auto [held, is_new] = holders.emplace(place_of(*shard), shard);
      if (is_new) continue;
      std::vector<std::string> apart;
      for (const ParallelAxis& axis : shard->place.axes()) {
        if (!(held->second->place.find(axis.name) == axis)) apart.push_back(axis.name);
      }
      throw ConfigError(formatted(
          "ranks {} and {} both hold {}: {}", held->second->rank, shard->rank, text_of(held->first),
          apart.empty() ? std::string("their parallel states do not tell them apart")
                        : formatted("they differ in {}, of which dims says nothing; put it in brackets behind the "
                                    "dimension it shares, or write '# {}:replicated'",
                                    fmt::join(apart, ", "), apart.front())));
    }
    Place place(sizes_.size(), 0);
    for (;;) {
      if (holders.count(place) == 0) {
        throw ConfigError(
            formatted("no rank holds {}: {} ranks are here (of those that hold data)", text_of(place), shards_.size()));
      }
      std::size_t at = place.size();
      for (auto axis = sizes_.rbegin(); axis != sizes_.rend(); ++axis) {
        if (++place[--at] < axis->second) break;
        place[at] = 0;
        if (at == 0) return;
      }
      if (sizes_.empty()) return;
    }
  }

  // Reduces each group of shards that differ only in this axis to one that most of them are equal to.
  void keep_one_replica(const std::string& axis, std::vector<ReplicaDifference>& differences) {
    const auto at = std::distance(sizes_.begin(), sizes_.find(axis));
    std::map<Place, std::vector<const Shard*>> groups;
    for (const Shard* shard : shards_) {
      Place place = place_of(*shard);
      place.erase(place.begin() + at);
      groups[place].push_back(shard);
    }
    shards_.clear();
    for (auto& [place, group] : groups) {
      std::sort(group.begin(), group.end(), [&axis](const Shard* a, const Shard* b) {
        return active_axis(a->place, axis).rank < active_axis(b->place, axis).rank;
      });
      shards_.push_back(reference_of(axis, group, differences));
    }
    sizes_.erase(axis);
  }

  static const Shard* reference_of(const std::string& axis, const std::vector<const Shard*>& group,
                                   std::vector<ReplicaDifference>& differences) {
    std::vector<std::vector<const Shard*>> equals;
    for (const Shard* shard : group) {
      const auto same = std::find_if(equals.begin(), equals.end(), [shard](const auto& one) {
        return diff(one.front()->tensor, shard->tensor).same_values();
      });
      if (same != equals.end()) {
        same->push_back(shard);
      } else {
        equals.push_back({shard});
      }
    }
    const auto most = std::max_element(equals.begin(), equals.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const Shard* reference = most->front();
    for (const auto& one : equals) {
      if (&one == &*most) continue;
      for (const Shard* odd : one) {
        differences.push_back({axis, reference->rank, odd->rank, diff(reference->tensor, odd->tensor)});
      }
    }
    return reference;
  }

  void require_equal_forms() const {
    const Shard& first = *shards_.front();
    require_dimensions(dims_, first.tensor.sizes().vec(), formatted("rank {}", first.rank));
    for (const Shard* shard : shards_) {
      if (shard->tensor.sizes() != first.tensor.sizes()) {
        throw ConfigError(formatted("ranks {} and {} hold shapes [{}] and [{}]: shards must be of equal size",
                                    first.rank, shard->rank, fmt::join(first.tensor.sizes().vec(), ", "),
                                    fmt::join(shard->tensor.sizes().vec(), ", ")));
      }
      if (shard->tensor.scalar_type() != first.tensor.scalar_type()) {
        throw ConfigError(formatted("ranks {} and {} hold dtypes {} and {}", first.rank, shard->rank,
                                    describe_dtype(first.tensor), describe_dtype(shard->tensor)));
      }
    }
  }

  static std::string describe_dtype(const at::Tensor& tensor) {
    return std::string(c10::getDtypeNames(tensor.scalar_type()).first);
  }

  at::Tensor put_together() const {
    const Shard& first = *shards_.front();
    if (sizes_.empty()) return first.tensor;
    std::vector<std::int64_t> shape = first.tensor.sizes().vec();
    for (std::size_t i = 0; i < shape.size(); ++i) {
      for (const DimShard& shard : dims_.dims()[i].shards) {
        if (!shard.is_partial) shape[i] *= active_axis(first.place, shard.axis).size;
      }
    }
    const c10::AutoGradMode no_grad(false);
    const at::ScalarType dtype = first.tensor.scalar_type();
    const bool sums = is_summed(dims_, first.place);
    const at::ScalarType wide = !sums                       ? dtype
                                : at::isComplexType(dtype)  ? at::kComplexDouble
                                : at::isFloatingType(dtype) ? at::kDouble
                                                            : at::kLong;
    const auto wide_options = first.tensor.options().dtype(wide);
    at::Tensor whole = sums ? at::zeros(shape, wide_options) : at::empty(shape, wide_options);
    for (const Shard* shard : shards_) {
      const auto ranges = held_ranges(dims_, shape, shard->place, options_);
      for (std::size_t i = 0; i < shape.size(); ++i) {
        if (length_of(ranges[i]) != shard->tensor.size(static_cast<std::int64_t>(i))) {
          throw ConfigError(formatted("rank {} holds {} of dimension {}, and should hold {} of {}", shard->rank,
                                      shard->tensor.size(static_cast<std::int64_t>(i)), name_of(dims_.dims()[i]),
                                      length_of(ranges[i]), shape[i]));
        }
      }
      for_each_block(shard->tensor, whole, ranges, 0, [&](const at::Tensor& from, const at::Tensor& to) {
        sums ? to.add_(from.to(wide)) : to.copy_(from);
      });
    }
    return whole.to(dtype);
  }

  const Dims& dims_;
  const ShardOptions& options_;
  std::vector<const Shard*> shards_;
  std::vector<std::string> sharded_;
  std::vector<std::string> replicated_;
  std::map<std::string, int> sizes_;
};

}  // namespace

std::vector<std::vector<IndexRange>> held_ranges(const Dims& dims, const std::vector<std::int64_t>& full_shape,
                                                 const ParallelState& place, const ShardOptions& options) {
  require_dimensions(dims, full_shape, "the whole tensor");
  std::vector<Ranges> held;
  for (std::size_t i = 0; i < full_shape.size(); ++i) {
    held.push_back(ranges_of_dimension(dims.dims()[i], full_shape[i], place, options));
  }
  return held;
}

at::Tensor shard_of(const Dims& dims, const at::Tensor& full, const ParallelState& place, const ShardOptions& options) {
  const auto held = held_ranges(dims, full.sizes().vec(), place, options);
  const c10::AutoGradMode no_grad(false);
  at::Tensor shard = full;
  for (std::size_t i = 0; i < held.size(); ++i) shard = take(shard, static_cast<std::int64_t>(i), held[i]);
  for (const Dim& dim : dims.dims()) {
    for (const DimShard& how : dim.shards) {
      if (how.is_partial && active_axis(place, how.axis).rank > 0) return at::zeros_like(shard);
    }
  }
  return shard;
}

Unsharded unshard(const Dims& dims, const std::vector<Shard>& shards, const ShardOptions& options) {
  return Assembly(dims, shards, options).run();
}

}  // namespace dbg
