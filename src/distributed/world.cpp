// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Checks what a World is given and hands it out again.
#include "dbg/world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/formatted.h"
#include "dbg/error.h"
#include "distributed/network_interfaces.h"
#include "distributed/world_state.h"

namespace dbg {

using distributed::NamedStore;

namespace {

void check_ranks(int rank, int world_size, const WorldOptions& options) {
  if (world_size < 1) throw ConfigError(formatted("World: world_size is {}; it is at least 1.", world_size));
  if (rank < 0 || rank >= world_size) {
    throw ConfigError(
        formatted("World: rank is {} of {} ranks; it is from 0 to {}.", rank, world_size, world_size - 1));
  }
  if (options.local_rank < 0 || options.local_rank >= world_size) {
    throw ConfigError(
        formatted("World: local_rank is {} on rank {} of {}; it is the rank's number among those of its "
                  "machine, from 0.",
                  options.local_rank, rank, world_size));
  }
  if (options.node_id < 0) throw ConfigError(formatted("World: node_id is {}; it is at least 0.", options.node_id));
}

void check_options(const WorldOptions& options) {
  if (options.timeout <= std::chrono::milliseconds::zero()) {
    throw ConfigError(formatted("World: timeout is {} ms; it is above 0.", options.timeout.count()));
  }
  const std::string_view prefix = options.key_prefix;
  if (prefix.empty() || prefix.front() == '/' || prefix.back() == '/') {
    throw ConfigError(formatted("World: key_prefix is '{}'; it is not empty and has no slash at its ends.", prefix));
  }
}

}  // namespace

World::State World::State::checked(int rank, int world_size, const WorldOptions& options) {
  check_ranks(rank, world_size, options);
  check_options(options);
  State state;
  state.rank = rank;
  state.world_size = world_size;
  state.options = options;
  state.pid = ::getpid();
  if (state.options.interface.empty()) {
    if (const char* named = std::getenv("GLOO_SOCKET_IFNAME")) state.options.interface = named;
  }
  distributed::check_interfaces(state.options.interface);
  return state;
}

void World::State::take(NamedStore opened) {
  store = std::move(opened.store);
  kind = std::move(opened.kind);
  store_host = std::move(opened.host);
  store_port = opened.port;
  caller = distributed::StoreCaller::of(store);
}

World World::create(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, const WorldOptions& options) {
  if (!store) throw ConfigError("World: the store is null; give a HashStore, FileStore or TCPStore.");
  State state = State::checked(rank, world_size, options);
  state.take({std::move(store), "the caller's store"});
  return World(std::make_shared<const State>(std::move(state)));
}

World World::over_tcp(const TcpStoreAddress& address, int rank, int world_size, const WorldOptions& options) {
  // All that can be known to be wrong is said before anything is waited for.
  State state = State::checked(rank, world_size, options);
  if (address.host.empty()) throw ConfigError("World: the store's host is empty; name one that every rank can reach.");
  if (address.port == 0 && !address.is_server) {
    throw ConfigError(
        formatted("World: the store's port is 0 on rank {}, which does not serve it; only the server may "
                  "take any free port, and tells the others which (store_port()).",
                  rank));
  }
  distributed::check_interface_reaches(state.options.interface, address.host);
  state.take(distributed::open_tcp_store(address, world_size, options.timeout));
  return World(std::make_shared<const State>(std::move(state)));
}

World World::over_file(const std::string& path, int rank, int world_size, const WorldOptions& options) {
  State state = State::checked(rank, world_size, options);
  state.take(distributed::open_file_store(path, world_size, options.timeout));
  return World(std::make_shared<const State>(std::move(state)));
}

std::vector<World> World::for_threads(int world_size, const WorldOptions& options) {
  if (world_size < 1) throw ConfigError(formatted("World: world_size is {}; it is at least 1.", world_size));
  const NamedStore opened = distributed::open_memory_store();
  std::vector<World> worlds;
  for (int rank = 0; rank < world_size; ++rank) {
    WorldOptions own = options;
    own.local_rank = rank;
    State state = State::checked(rank, world_size, own);
    state.take(opened);
    worlds.push_back(World(std::make_shared<const State>(std::move(state))));
  }
  return worlds;
}

World::World(std::shared_ptr<const State> state) : state_(std::move(state)) {}
World::World(const World&) = default;
World::World(World&&) noexcept = default;
World& World::operator=(const World&) = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

c10::intrusive_ptr<c10d::Store> World::store() const {
  return state_->store;
}
int World::rank() const noexcept {
  return state_->rank;
}
int World::world_size() const noexcept {
  return state_->world_size;
}
int World::local_rank() const noexcept {
  return state_->options.local_rank;
}
int World::node_id() const noexcept {
  return state_->options.node_id;
}
int World::pid() const noexcept {
  return state_->pid;
}
std::chrono::milliseconds World::timeout() const noexcept {
  return state_->options.timeout;
}
const std::string& World::interface() const noexcept {
  return state_->options.interface;
}
const std::string& World::key_prefix() const noexcept {
  return state_->options.key_prefix;
}
const std::string& World::store_host() const noexcept {
  return state_->store_host;
}
std::uint16_t World::store_port() const noexcept {
  return state_->store_port;
}

std::string World::describe() const {
  const std::string where =
      store_port() != 0 ? formatted("{} {}:{}", state_->kind, store_host(), store_port()) : state_->kind;
  return formatted("rank {} of {} (local rank {}, node {}) over {}", rank(), world_size(), local_rank(), node_id(),
                   where);
}

}  // namespace dbg
