// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// All ranks of a run and the store through which they find each other. Knows nothing of groups.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dbg/export.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace dbg {

/// What a World is told beyond the store, the rank and the number of ranks.
struct WorldOptions {
  /// How long to wait for the store; also what groups take when they are given no timeout of their own.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  /// The network interface that gloo binds to, or several separated by commas. Empty: `GLOO_SOCKET_IFNAME`, and without
  /// it the address that this machine's name stands for.
  std::string interface = {};
  int local_rank = 0;  ///< among the ranks of this machine
  int node_id = 0;     ///< which machine
  /// Put before every key that dbg writes. The same on all ranks; runs that share a store need different ones.
  std::string key_prefix = "dbg";
};

/// Where a TCPStore is, and who serves it.
struct TcpStoreAddress {
  std::string host;        ///< a name or address that every rank can reach
  std::uint16_t port = 0;  ///< 0, for the server only: any free one, to be read from `World::store_port()`
  bool is_server = false;  ///< true on exactly one rank; it must outlive the others' use of the store
};

/// This rank's view of all ranks: store, rank, world_size, local_rank, node_id, pid. Copies share the store.
///
/// Groups ask a store that is not in this process's memory through one thread of dbg's own, which ends with the last
/// World and group over it: a server that falls silent holds up no call beyond its time. Threads: immutable, safe to
/// use from any thread.
class DBG_API World {
 public:
  /// Reads `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT`, as torchrun sets them (also
  /// `torchrun --no-python`). With none of them set: a world of one rank over a store in memory.
  ///
  /// Under torchrun the agent serves the store (`TORCHELASTIC_USE_AGENT_STORE`) and every rank is its client; else rank
  /// 0 serves it. Our keys lie under `dbg/`, under torchrun under `dbg/attempt_<TORCHELASTIC_RESTART_COUNT>/`. Throws:
  /// ConfigError naming the variables that are missing or make no sense; CommError (store_down) with host, port, role
  /// and elapsed time when the store cannot be reached within `timeout`.
  static World from_env(std::chrono::milliseconds timeout = std::chrono::minutes(5));

  /// Takes a store: a HashStore (ranks as threads), FileStore, TCPStore, or one of the caller's own.
  /// Throws: ConfigError when a value makes no sense.
  static World create(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
                      const WorldOptions& options = {});

  /// Serves or joins a TCPStore. Multi-tenant: several of one process may serve the same port.
  /// Throws: as `from_env`.
  static World over_tcp(const TcpStoreAddress& address, int rank, int world_size, const WorldOptions& options = {});

  /// Meets the other ranks in a file that all of them see. A file that an earlier run left is an earlier run's: remove
  /// it. Throws: as `create`; CommError (store_down) when the file can't be used.
  static World over_file(const std::string& path, int rank, int world_size, const WorldOptions& options = {});

  /// Makes the worlds of several ranks of this process, over one store in memory; the position is the rank and the
  /// local rank.
  static std::vector<World> for_threads(int world_size, const WorldOptions& options = {});

  World(const World&);
  World(World&&) noexcept;
  World& operator=(const World&);
  World& operator=(World&&) noexcept;
  ~World();

  /// The store as it was given, without a prefix.
  c10::intrusive_ptr<c10d::Store> store() const;
  int rank() const noexcept;
  int world_size() const noexcept;
  int local_rank() const noexcept;
  int node_id() const noexcept;
  /// The process that opened it. A forked child opens one of its own: groups refuse its parent's.
  int pid() const noexcept;
  std::chrono::milliseconds timeout() const noexcept;
  /// As the options or `GLOO_SOCKET_IFNAME` gave it; empty: gloo's choice.
  const std::string& interface() const noexcept;
  /// What stands before our keys, without a slash at the end: `dbg/attempt_0`.
  const std::string& key_prefix() const noexcept;
  /// The host of the TCPStore, empty for another store.
  const std::string& store_host() const noexcept;
  /// The port of the TCPStore that is in use, 0 for another store.
  std::uint16_t store_port() const noexcept;

  /// One line for messages: `rank 1 of 4 (local rank 1, node 0) over TCPStore 10.0.0.1:29500`.
  std::string describe() const;

 private:
  struct State;
  explicit World(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace dbg
