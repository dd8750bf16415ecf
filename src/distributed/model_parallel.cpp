// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Makes a coordinator for each name of the layout, or finds the one whose ranks are the same.
#include "dbg/model_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/formatted.h"
#include "dbg/error.h"

namespace dbg {

struct ModelParallel::Impl {
  ModelParallelLayout layout;
  int rank = 0;
  ParallelState state;
  /// In the order they were made.
  std::vector<std::shared_ptr<GroupCoordinator>> made;
  /// For each name of the layout, in its order.
  std::vector<std::pair<std::string, std::shared_ptr<GroupCoordinator>>> by_name;
};

ModelParallel::ModelParallel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ModelParallel::~ModelParallel() {
  impl_->by_name.clear();
  // The last one first. Whoever else holds a group keeps it.
  while (!impl_->made.empty()) impl_->made.pop_back();
}

std::shared_ptr<ModelParallel> ModelParallel::create(const World& world, const ParallelSizes& sizes,
                                                     const GroupOptions& options) {
  if (!options.group_name.empty()) {
    throw ConfigError(
        formatted("ModelParallel::create with group_name '{}'; each group gets its own name: leave it empty",
                  options.group_name));
  }
  auto impl = std::make_unique<Impl>();
  impl->layout = make_layout(world.world_size(), sizes);
  impl->rank = world.rank();
  impl->state = impl->layout.state_of(world.rank());
  // Owned before the first group is made, so that a failure closes those there are in order.
  const std::shared_ptr<ModelParallel> made(new ModelParallel(std::move(impl)));
  Impl& all = *made->impl_;
  const std::vector<ParallelGroup>& groups = all.layout.groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto same =
        std::find_if(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const ParallelGroup& earlier) { return earlier.group_ranks == groups[i].group_ranks; });
    std::shared_ptr<GroupCoordinator> coordinator;
    if (const auto place = static_cast<std::size_t>(same - groups.begin()); place < i) {
      coordinator = all.by_name[place].second;
      coordinator->add_alias(groups[i].name);
    } else {
      GroupOptions named = options;
      named.group_name = groups[i].name;
      coordinator = GroupCoordinator::create(world, groups[i].group_ranks, named);
      all.made.push_back(coordinator);
    }
    all.by_name.emplace_back(groups[i].name, std::move(coordinator));
  }
  return made;
}

const ModelParallelLayout& ModelParallel::layout() const noexcept {
  return impl_->layout;
}

int ModelParallel::rank() const noexcept {
  return impl_->rank;
}

std::shared_ptr<GroupCoordinator> ModelParallel::group(std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [known, coordinator] : impl_->by_name) {
    if (known == name) return coordinator;
    names.push_back(known);
  }
  throw ConfigError(formatted("there is no group '{}' in this layout; there are {}", name, fmt::join(names, ", ")));
}

bool ModelParallel::has_group(std::string_view name) const noexcept {
  return std::any_of(impl_->by_name.begin(), impl_->by_name.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

const ParallelState& ModelParallel::parallel_state() const noexcept {
  return impl_->state;
}

void ModelParallel::close() noexcept {
  for (auto group = impl_->made.rbegin(); group != impl_->made.rend(); ++group) (*group)->close();
}

}  // namespace dbg
