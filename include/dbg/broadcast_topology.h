// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Who sends weights and who receives them: a pure function of what the workers say of themselves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// What a worker is: it trains, or it generates.
enum class WorkerRole {
  actor,    ///< has the new weights: root, relay, or neither
  rollout,  ///< a consumer
};

/// The role as it stands in messages: `actor`.
DBG_API const char* to_text(WorkerRole role) noexcept;

/// What a source hands out.
enum class SourceKind {
  full_weights,  ///< each weight whole
  delta,         ///< what changed since the last sync, which only one actor knows: relays can't cut it alike
};

/// Whether actors beside the first may send too.
DBG_API bool allows_relays(SourceKind kind) noexcept;

/// What a worker says of itself. Role and index identify it: actors and rollouts may be separate launches with ranks of
/// their own.
struct DBG_API WorkerMetadata {
  WorkerRole role = WorkerRole::actor;
  int index = 0;          ///< within the role, from 0
  int num_of_role = 1;    ///< how many workers of this role there are, as this worker was told
  std::string node_id{};  ///< equal for the workers of one machine; `this_node_id()` unless the scheduler knows better
  /// Where the broadcast's ranks meet: the name of their keys in the store. Actor 0 says it, and nobody else.
  std::string endpoint{};
  /// Whether actor 0's neighbours send too. Counts on actor 0 only.
  bool multi_sender = true;

  /// `actor 1 on node a`; without a node only `actor 1`.
  std::string who() const;

  std::string to_json() const;
  /// Throws: ConfigError naming the field that is missing or makes no sense.
  static WorkerMetadata from_json(std::string_view text);
};

/// This machine: its host name and the kernel's boot id, so that containers of one machine are told apart by name and
/// machines of one name by boot.
DBG_API std::string this_node_id();

/// A worker's part in the broadcast.
struct WorkerPlace {
  int rank = -1;  ///< in the group of senders and consumers; -1: an actor that does not send
  int world_size = 0;
  int num_senders = 0;
};

/// The group of senders (ranks 0 to num_senders - 1, 0 being the root) and consumers (all others).
struct DBG_API BroadcastTopology {
  int world_size = 0;
  int num_senders = 0;
  std::string endpoint{};
  std::vector<int> actor_ranks{};       ///< by the actor's index; -1: does not send
  std::vector<int> rollout_ranks{};     ///< by the rollout's index
  std::vector<std::string> node_ids{};  ///< by rank

  /// Throws: ConfigError when there is no such worker.
  WorkerPlace place_of(WorkerRole role, int index) const;

  /// The worker that has a rank: `rollout 2 on node b`. Throws: ConfigError when there is no such rank.
  std::string who(int rank) const;

  /// `2 of 8 actors send, world_size 6`.
  std::string describe() const;

  /// Throws: ConfigError unless ranks, senders, nodes and endpoint fit together, as those of build_topology do.
  void check() const;

  /// For the driver that hands it on.
  std::string to_json() const;
  /// Throws: ConfigError naming what is missing or makes no sense.
  static BroadcastTopology from_json(std::string_view text);
};

/// Gives each worker its rank.
///
/// Actor 0 gets 0. With several senders each further actor of actor 0's node gets the next rank, in the order of the
/// actors; actors on other nodes would have to pull a full copy first and get -1, as all but actor 0 do with a single
/// sender. Consumers follow in their order. Without neighbours, and for a source kind without relays, there is one
/// sender whatever is asked.
/// The lists may be in any order; the index counts.
/// Throws: ConfigError: no actor, no rollout, a worker in the wrong list, an index that is missing or there twice, a
/// number of workers that is another than a worker was told, actor 0 without endpoint, another actor with one (a
/// second root).
DBG_API BroadcastTopology build_topology(const std::vector<WorkerMetadata>& actors,
                                         const std::vector<WorkerMetadata>& rollouts, bool multi_sender,
                                         SourceKind kind = SourceKind::full_weights);

/// The same, in the mode that actor 0's metadata says; by default that is `multi_sender = true`.
DBG_API BroadcastTopology build_topology(const std::vector<WorkerMetadata>& actors,
                                         const std::vector<WorkerMetadata>& rollouts);

}  // namespace dbg
