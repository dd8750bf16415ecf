// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Decides which ranks' tensors become one.
#include "compare/unshard.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/formatted.h"
#include "base/windowed_storage.h"
#include "compare/sequence_lengths.h"
#include "dbg/error.h"

namespace dbg::compare {
namespace {

constexpr std::string_view kPipeline = "pp";

using Ranks = std::vector<RankValue>;

std::vector<int> ranks_of(const Ranks& values) {
  std::vector<int> ranks;
  for (const RankValue& value : values) ranks.push_back(value.rank);
  return ranks;
}

bool are_tensors(const Ranks& values) {
  return std::all_of(values.begin(), values.end(), [](const RankValue& one) { return one.value.isTensor(); });
}

// An operator of torch reads the tensor as a whole.
void fetch(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) base::load_whole(tensor.storage());
}

Joined as_it_is(const RankValue& one) {
  return {one.value, {one.rank}, one.dims, {}, one.left_out};
}

std::string first_left_out(const Ranks& values) {
  for (const RankValue& one : values) {
    if (!one.left_out.empty()) return formatted("rank {}: {}", one.rank, one.left_out);
  }
  return {};
}

// Adds those that differ from `reference`.
void check_replicas(const RankValue& reference, const Ranks& others, std::string_view axis, Side side,
                    std::vector<OddReplica>& odd) {
  for (const RankValue& other : others) {
    if (!other.value.isTensor() || !reference.value.isTensor()) continue;
    TensorDiff difference = diff(reference.value.toTensor(), other.value.toTensor());
    if (difference.same_values()) continue;
    odd.push_back({to_text(side), std::string(axis), reference.rank, other.rank, std::move(difference)});
  }
}

bool is_empty(const c10::IValue& value) {
  return value.isNone() || (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() == 0);
}

// Of several pipeline stages, the first that holds something owns the value; later ones that hold something must hold
// the same (the embedding that the last stage shares with the first).
Ranks keep_owning_stage(Ranks values, Side side, std::vector<OddReplica>& odd) {
  std::map<int, Ranks> stages;
  for (RankValue& one : values) {
    const auto axis = one.place.find(kPipeline);
    stages[axis ? axis->rank : 0].push_back(std::move(one));
  }
  if (stages.size() > 1) {
    const bool has_some = std::any_of(stages.begin(), stages.end(), [](const auto& stage) {
      return std::any_of(stage.second.begin(), stage.second.end(),
                         [](const auto& one) { return !is_empty(one.value); });
    });
    for (auto stage = stages.begin(); has_some && stage != stages.end();) {
      const bool holds = std::any_of(stage->second.begin(), stage->second.end(),
                                     [](const RankValue& one) { return !is_empty(one.value); });
      stage = holds ? std::next(stage) : stages.erase(stage);
    }
  }
  Ranks owner = std::move(stages.begin()->second);
  for (auto stage = std::next(stages.begin()); stage != stages.end(); ++stage) {
    for (std::size_t i = 0; i < std::min(owner.size(), stage->second.size()); ++i) {
      check_replicas(owner[i], {stage->second[i]}, kPipeline, side, odd);
    }
  }
  return owner;
}

// One value of all ranks, or why not.
struct Whole {
  std::optional<Joined> joined;
  std::string cause;
};

Whole whole_of(const Ranks& values, Side side) {
  if (values.size() == 1 && (!values.front().dims || !values.front().value.isTensor())) {
    return {as_it_is(values.front()), {}};
  }
  const auto named = [side](std::string_view text) { return formatted("{}: {}", to_text(side), text); };
  if (!are_tensors(values)) {
    return {std::nullopt,
            named(formatted("ranks {} hold values that are no tensors", fmt::join(ranks_of(values), ", ")))};
  }
  const std::optional<Dims>& dims = values.front().dims;
  if (!dims) {
    return {std::nullopt,
            named(formatted("ranks {} hold tensors, and nothing says how they make one; add a line such as "
                            "'dims NAME: b s h[tp]' to a file and pass it as --rules",
                            fmt::join(ranks_of(values), ", ")))};
  }
  try {
    std::vector<Shard> shards;
    ShardOptions options;
    options.sequence_lengths = values.front().sequence_lengths;
    for (const RankValue& one : values) {
      if (!(one.dims == dims)) {
        return {std::nullopt, named(formatted("ranks {} and {} say different dims", values.front().rank, one.rank))};
      }
      if (one.sequence_lengths != options.sequence_lengths) {
        return {std::nullopt, named(formatted("ranks {} and {} pack sequences of lengths [{}] and [{}]",
                                              values.front().rank, one.rank, fmt::join(options.sequence_lengths, ", "),
                                              fmt::join(one.sequence_lengths, ", ")))};
      }
      if (values.size() > 1) fetch(one.value.toTensor());
      shards.push_back({one.value.toTensor(), one.place, one.rank});
    }
    Unsharded made = unshard(*dims, shards, options);
    Joined joined{made.tensor, ranks_of(values), dims, {}, first_left_out(values)};
    for (ReplicaDifference& one : made.replica_differences) {
      joined.odd_replicas.push_back(
          {to_text(side), one.axis, one.reference_rank, one.odd_rank, std::move(one.difference)});
    }
    return {std::move(joined), {}};
  } catch (const ConfigError& error) {
    const bool lacks_lengths =
        needs_sequence_lengths(*dims, values.front().place) && values.front().sequence_lengths.empty();
    return {std::nullopt,
            named(formatted("{}{}", error.what(),
                            lacks_lengths ? "; dump them in the same step, as seq_lens or cu_seqlens_q" : ""))};
  } catch (const c10::Error& error) {
    return {std::nullopt, named(error.what_without_backtrace())};
  }
}

// Each rank that both sides have, and a cause for each other one.
std::vector<JoinedPair> rank_by_rank(const Ranks& baseline, const Ranks& target, const std::string& note) {
  std::vector<JoinedPair> pairs;
  for (const RankValue& one : baseline) {
    const auto other = std::find_if(target.begin(), target.end(),
                                    [&one](const RankValue& candidate) { return candidate.rank == one.rank; });
    if (other != target.end()) pairs.push_back({as_it_is(one), as_it_is(*other), note, {}});
  }
  return pairs;
}

bool have_equal_places(const Ranks& a, const Ranks& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const RankValue& one, const RankValue& other) {
    return one.rank == other.rank && one.place == other.place;
  });
}

// Several ranks without dims against one value: they are taken for its replicas.
Joined replicas_as_one(const Ranks& values, Side side) {
  Joined joined = as_it_is(values.front());
  joined.ranks = ranks_of(values);
  check_replicas(values.front(), {values.begin() + 1, values.end()}, "rank", side, joined.odd_replicas);
  return joined;
}

}  // namespace

std::vector<JoinedPair> join_ranks(Ranks baseline, Ranks target) {
  const auto has_dims = [](const Ranks& values) { return values.front().dims.has_value(); };
  if (!has_dims(baseline) && !has_dims(target) && ranks_of(baseline) == ranks_of(target)) {
    return rank_by_rank(baseline, target, "");
  }
  JoinedPair pair;
  baseline = keep_owning_stage(std::move(baseline), Side::baseline, pair.baseline.odd_replicas);
  target = keep_owning_stage(std::move(target), Side::target, pair.target.odd_replicas);
  Whole of_baseline = whole_of(baseline, Side::baseline);
  Whole of_target = whole_of(target, Side::target);
  const auto is_replicated = [&has_dims](const Ranks& values, const Whole& other) {
    return values.size() > 1 && !has_dims(values) && are_tensors(values) && other.joined &&
           other.joined->ranks.size() == 1;
  };
  const std::string causes =
      of_baseline.cause + (of_baseline.cause.empty() || of_target.cause.empty() ? "" : "; ") + of_target.cause;
  if (!causes.empty()) {
    if (have_equal_places(baseline, target)) {
      return rank_by_rank(baseline, target, "compared rank by rank: " + causes);
    }
    if (is_replicated(baseline, of_target)) of_baseline.joined = replicas_as_one(baseline, Side::baseline);
    if (is_replicated(target, of_baseline)) of_target.joined = replicas_as_one(target, Side::target);
    if (of_baseline.joined && of_target.joined) pair.note = "ranks taken for replicas: nothing says how they make one";
  }
  const auto take = [](Joined& to, Whole& from, const Ranks& ranks) {
    std::vector<OddReplica> odd = std::move(to.odd_replicas);
    if (from.joined) {
      to = std::move(*from.joined);
    } else {
      to.ranks = ranks_of(ranks);
    }
    to.odd_replicas.insert(to.odd_replicas.begin(), odd.begin(), odd.end());
  };
  if (!of_baseline.joined || !of_target.joined) pair.cause = causes;
  take(pair.baseline, of_baseline, baseline);
  take(pair.target, of_target, target);
  std::vector<JoinedPair> pairs;
  pairs.push_back(std::move(pair));
  return pairs;
}

}  // namespace dbg::compare
