// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// What a World holds, and how it is put together by its several makers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dbg/world.h"
#include "distributed/store_caller.h"

namespace dbg {

namespace distributed {

/// A store with what its messages say about it.
struct NamedStore {
  c10::intrusive_ptr<c10d::Store> store;
  std::string kind;
  std::string host = {};
  std::uint16_t port = 0;
};

}  // namespace distributed

struct World::State {
  /// All but the store. Throws: ConfigError when a value makes no sense.
  static State checked(int rank, int world_size, const WorldOptions& options);

  void take(distributed::NamedStore opened);

  /// Held for as long as the world lives, so that groups made later know of a store that fell silent before. Goes after
  /// `store`: a server's end may take long, and is the caller's to see to.
  std::shared_ptr<distributed::StoreCaller> caller;
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  WorldOptions options;
  int pid = 0;             // the process that opened it
  std::string kind;        // `HashStore`, `TCPStore` ...
  std::string store_host;  // of a TCPStore
  std::uint16_t store_port = 0;
};

namespace distributed {

/// Why one try to connect fails, by the deadline; nullopt when somebody listens there.
std::optional<std::string> why_no_connection(const std::string& host, int port,
                                             std::chrono::steady_clock::time_point deadline);

/// Serves or joins a TCPStore, within `timeout`; `world_size` is told to the store as torch's Python tells it.
/// Throws: CommError (store_down) with host, port, role and elapsed time.
NamedStore open_tcp_store(const TcpStoreAddress& address, int world_size, std::chrono::milliseconds timeout);

/// Throws: CommError (store_down).
NamedStore open_file_store(const std::string& path, int world_size, std::chrono::milliseconds timeout);

NamedStore open_memory_store();

}  // namespace distributed
}  // namespace dbg
