// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups as lines through a grid of ranks.
#include "dbg/model_parallel_layout.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg {
namespace {

// The world as a grid, slowest dimension first; ranks count through it row by row.
using Grid = std::vector<int>;
using Groups = std::vector<std::vector<int>>;

int product(const Grid& grid) {
  int all = 1;
  for (const int size : grid) all *= size;
  return all;
}

// One group for each place in the dimensions that are not named: the ranks that differ in `along` only.
Groups groups_along(const Grid& grid, const std::vector<std::size_t>& along) {
  const auto varies = [&](std::size_t dim) { return std::find(along.begin(), along.end(), dim) != along.end(); };
  Groups groups;
  for (int rank = 0; rank < product(grid); ++rank) {
    std::size_t place = 0;
    int below = product(grid);
    for (std::size_t dim = 0; dim < grid.size(); ++dim) {
      below /= grid[dim];
      const int at = rank / below % grid[dim];
      if (!varies(dim)) place = place * static_cast<std::size_t>(grid[dim]) + static_cast<std::size_t>(at);
    }
    if (groups.size() <= place) groups.resize(place + 1);
    groups[place].push_back(rank);
  }
  return groups;
}

void require_positive(const ParallelSizes& sizes) {
  const std::array<std::pair<const char*, int>, 7> all{{{"tp", sizes.tp},
                                                        {"pp", sizes.pp},
                                                        {"dp", sizes.dp},
                                                        {"attn_dp", sizes.attn_dp},
                                                        {"cp", sizes.cp},
                                                        {"ep", sizes.ep},
                                                        {"moe_dp", sizes.moe_dp}}};
  for (const auto& [name, size] : all) {
    if (size < 1) throw ConfigError(formatted("model parallel size {} is {}; it must be at least 1", name, size));
  }
}

// What is left of tp when its ranks are divided `first` x `second` ways.
int divide_tp(int tp, const char* first_name, int first, const char* second_name, int second, const char* rest_name) {
  const std::int64_t ways = static_cast<std::int64_t>(first) * second;
  if (ways > tp || tp % ways != 0) {
    throw ConfigError(formatted("tp {} is not divisible by {} {} x {} {} = {}, so there is no {}", tp, first_name,
                                first, second_name, second, ways, rest_name));
  }
  return static_cast<int>(tp / ways);
}

}  // namespace

ModelParallelLayout ModelParallelLayout::make(int world_size, const ParallelSizes& sizes) {
  require_positive(sizes);
  const bool is_divided = sizes.attn_dp > 1 || sizes.cp > 1 || sizes.ep > 1 || sizes.moe_dp > 1;
  if (is_divided && (sizes.dp > 1 || sizes.experts_over_dp)) {
    throw ConfigError(formatted(
        "dp {} and experts_over_dp {} are vLLM's, attn_dp {}, cp {}, ep {} and moe_dp {} SGLang's, which divides tp: "
        "set those of one only",
        sizes.dp, sizes.experts_over_dp, sizes.attn_dp, sizes.cp, sizes.ep, sizes.moe_dp));
  }
  // Three numbers of 31 bits.
  const auto ranks = static_cast<__int128>(sizes.dp) * sizes.pp * sizes.tp;
  if (ranks != world_size) {
    throw ConfigError(formatted("dp {} x pp {} x tp {} = {} ranks, and the world has {}", sizes.dp, sizes.pp, sizes.tp,
                                ranks, world_size));
  }

  ModelParallelLayout layout;
  layout.world_size_ = world_size;
  const auto add = [&](const char* name, Groups groups) { layout.groups_.push_back({name, std::move(groups)}); };
  const Grid whole{sizes.dp, sizes.pp, sizes.tp};
  add("tp", groups_along(whole, {2}));
  add("pp", groups_along(whole, {1}));
  if (sizes.dp > 1) add("dp", groups_along(whole, {0}));
  if (sizes.experts_over_dp) add("ep", groups_along(whole, {0, 2}));
  if (!is_divided) return layout;

  const int attn_tp = divide_tp(sizes.tp, "attn_dp", sizes.attn_dp, "cp", sizes.cp, "attn_tp");
  const int moe_tp = divide_tp(sizes.tp, "moe_dp", sizes.moe_dp, "ep", sizes.ep, "moe_tp");
  const Grid attention{sizes.pp, sizes.attn_dp, sizes.cp, attn_tp};
  add("attn_tp", groups_along(attention, {3}));
  add("attn_cp", groups_along(attention, {2}));
  add("attn_dp", groups_along(attention, {1}));
  const Grid experts{sizes.pp, sizes.moe_dp, sizes.ep, moe_tp};
  add("moe_tp", groups_along(experts, {3}));
  add("moe_ep", groups_along(experts, {2}));
  // Source: the twin. With fewer copies of the experts than context ranks, those share their tokens before the experts.
  add("moe_dp", sizes.cp > sizes.moe_dp ? groups_along(attention, {2}) : groups_along(experts, {1}));
  return layout;
}

const ParallelGroup* ModelParallelLayout::find(std::string_view name) const noexcept {
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const ParallelGroup& group) { return group.name == name; });
  return found != groups_.end() ? &*found : nullptr;
}

ParallelState ModelParallelLayout::state_of(int rank) const {
  if (rank < 0 || rank >= world_size_) {
    throw ConfigError(formatted("rank {} in a layout of {} ranks", rank, world_size_));
  }
  ParallelState state;
  for (const ParallelGroup& group : groups_) {
    for (const std::vector<int>& members : group.group_ranks) {
      const auto found = std::find(members.begin(), members.end(), rank);
      if (found == members.end()) continue;
      state.set(group.name, static_cast<int>(found - members.begin()), static_cast<int>(members.size()));
    }
  }
  return state;
}

ModelParallelLayout make_layout(int world_size, const ParallelSizes& sizes) {
  return ModelParallelLayout::make(world_size, sizes);
}

}  // namespace dbg
