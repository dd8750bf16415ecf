// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// All parallel groups of one rank, made from the sizes.
#pragma once

#include <memory>
#include <string_view>

#include "dbg/export.h"
#include "dbg/group_coordinator.h"
#include "dbg/model_parallel_layout.h"
#include "dbg/parallel_state.h"
#include "dbg/world.h"

namespace dbg {

/// The groups of a ModelParallelLayout as seen by one rank: a GroupCoordinator for each name.
///
/// Names whose groups are the same ranks share one GroupCoordinator, which carries the others as aliases.
/// Threads: safe to call from any thread; the groups' own rules hold for what they communicate.
class DBG_API ModelParallel {
 public:
  /// Makes all groups, one after the other in the layout's order.
  ///
  /// Collective: all ranks of the world, with the same sizes. `options` apply to every group; its `group_name` stays
  /// empty, since each group gets its own name.
  /// Throws: ConfigError as `make_layout`; what `GroupCoordinator::create` throws. Groups made before are closed then.
  static std::shared_ptr<ModelParallel> create(const World& world, const ParallelSizes& sizes,
                                               const GroupOptions& options = {});

  /// As close(), with a short bound.
  ~ModelParallel();
  ModelParallel(const ModelParallel&) = delete;
  ModelParallel& operator=(const ModelParallel&) = delete;

  const ModelParallelLayout& layout() const noexcept;
  /// The global rank whose groups these are.
  int rank() const noexcept;

  /// The group called `name`.
  /// Throws: ConfigError that lists the names there are.
  std::shared_ptr<GroupCoordinator> group(std::string_view name) const;
  bool has_group(std::string_view name) const noexcept;

  /// This rank's place in each group: what a Dumper writes into its records.
  const ParallelState& parallel_state() const noexcept;

  /// Closes the groups in the reverse order of their creation. Never throws.
  void close() noexcept;

 private:
  struct Impl;
  explicit ModelParallel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dbg
