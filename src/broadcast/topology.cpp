// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Checks what the workers say and gives out ranks.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/formatted.h"
#include "dbg/broadcast_topology.h"
#include "dbg/error.h"

namespace dbg {
namespace {

using Json = nlohmann::json;

Json parsed(std::string_view text, std::string_view what) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw ConfigError(formatted("{}: '{}' is no JSON object.", what, text.substr(0, 200)));
  return json;
}

const Json& field(const Json& json, std::string_view what, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw ConfigError(formatted("{}: there is no \"{}\".", what, key));
  return *found;
}

[[noreturn]] void refuse(std::string_view what, const char* key, const Json& value, const char* expected) {
  throw ConfigError(formatted("{}: \"{}\" is {}; it is {}.", what, key, value.dump(), expected));
}

int integer(const Json& value, std::string_view what, const char* key, int least) {
  if (!value.is_number_integer()) refuse(what, key, value, "an integer");
  const auto number = value.get<std::int64_t>();
  if (number < least || number > std::numeric_limits<int>::max()) refuse(what, key, value, "out of range");
  return static_cast<int>(number);
}

std::string text_of(const Json& value, std::string_view what, const char* key) {
  if (!value.is_string()) refuse(what, key, value, "a text");
  return value.get<std::string>();
}

std::vector<int> ranks_of(const Json& json, std::string_view what, const char* key, int least) {
  const Json& value = field(json, what, key);
  if (!value.is_array()) refuse(what, key, value, "a list");
  std::vector<int> ranks;
  for (const Json& item : value) ranks.push_back(integer(item, what, key, least));
  return ranks;
}

// By index; each index once, and as many as the workers were told.
std::vector<const WorkerMetadata*> in_order(const std::vector<WorkerMetadata>& workers, WorkerRole role) {
  if (workers.empty()) throw ConfigError(formatted("build_topology: there is no {}.", to_text(role)));
  std::vector<const WorkerMetadata*> ordered(workers.size(), nullptr);
  for (const WorkerMetadata& worker : workers) {
    if (worker.role != role) {
      throw ConfigError(formatted("build_topology: {} stands among the {}s.", worker.who(), to_text(role)));
    }
    if (worker.num_of_role != static_cast<int>(workers.size())) {
      throw ConfigError(formatted("build_topology: {} was told of {} {}s, and there is metadata of {}.", worker.who(),
                                  worker.num_of_role, to_text(role), workers.size()));
    }
    if (worker.index < 0 || worker.index >= static_cast<int>(workers.size())) {
      throw ConfigError(
          formatted("build_topology: {} has an index outside 0 to {}.", worker.who(), workers.size() - 1));
    }
    auto& place = ordered[static_cast<std::size_t>(worker.index)];
    if (place != nullptr) {
      throw ConfigError(formatted("build_topology: {} {} is there twice, once on node '{}' and once on node '{}'.",
                                  to_text(role), worker.index, place->node_id, worker.node_id));
    }
    place = &worker;
  }
  return ordered;  // as many different indices as places: none is missing
}

}  // namespace

const char* to_text(WorkerRole role) noexcept {
  return role == WorkerRole::actor ? "actor" : "rollout";
}

bool allows_relays(SourceKind kind) noexcept {
  return kind == SourceKind::full_weights;
}

std::string WorkerMetadata::who() const {
  return node_id.empty() ? formatted("{} {}", dbg::to_text(role), index)
                         : formatted("{} {} on node {}", dbg::to_text(role), index, node_id);
}

std::string WorkerMetadata::to_json() const {
  Json json{{"role", dbg::to_text(role)}, {"index", index}, {"num_of_role", num_of_role}, {"node_id", node_id}};
  if (!endpoint.empty()) json["endpoint"] = endpoint;
  if (role == WorkerRole::actor) json["multi_sender"] = multi_sender;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WorkerMetadata WorkerMetadata::from_json(std::string_view text) {
  constexpr std::string_view kWhat = "worker metadata";
  const Json json = parsed(text, kWhat);
  WorkerMetadata worker;
  const std::string role = text_of(field(json, kWhat, "role"), kWhat, "role");
  if (role != "actor" && role != "rollout") refuse(kWhat, "role", role, "\"actor\" or \"rollout\"");
  worker.role = role == "actor" ? WorkerRole::actor : WorkerRole::rollout;
  worker.index = integer(field(json, kWhat, "index"), kWhat, "index", 0);
  worker.num_of_role = integer(field(json, kWhat, "num_of_role"), kWhat, "num_of_role", 1);
  worker.node_id = text_of(field(json, kWhat, "node_id"), kWhat, "node_id");
  if (json.contains("endpoint")) worker.endpoint = text_of(json["endpoint"], kWhat, "endpoint");
  if (json.contains("multi_sender")) {
    if (!json["multi_sender"].is_boolean()) refuse(kWhat, "multi_sender", json["multi_sender"], "true or false");
    worker.multi_sender = json["multi_sender"].get<bool>();
  }
  return worker;
}

std::string this_node_id() {
  std::array<char, 256> host{};
  static_cast<void>(::gethostname(host.data(), host.size() - 1));
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return formatted("{}/{}", host.data(), boot);
}

WorkerPlace BroadcastTopology::place_of(WorkerRole role, int index) const {
  const std::vector<int>& ranks = role == WorkerRole::actor ? actor_ranks : rollout_ranks;
  if (index < 0 || index >= static_cast<int>(ranks.size())) {
    throw ConfigError(formatted("the topology has no {} {}; there are {}.", to_text(role), index, ranks.size()));
  }
  return {ranks[static_cast<std::size_t>(index)], world_size, num_senders};
}

std::string BroadcastTopology::who(int rank) const {
  for (const WorkerRole role : {WorkerRole::actor, WorkerRole::rollout}) {
    const std::vector<int>& ranks = role == WorkerRole::actor ? actor_ranks : rollout_ranks;
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (rank < 0 || found == ranks.end()) continue;
    WorkerMetadata worker;
    worker.role = role;
    worker.index = static_cast<int>(found - ranks.begin());
    worker.node_id = node_ids.at(static_cast<std::size_t>(rank));
    return worker.who();
  }
  throw ConfigError(formatted("the topology has no rank {}; its ranks are 0 to {}.", rank, world_size - 1));
}

std::string BroadcastTopology::describe() const {
  return formatted("{} of {} actors send, world_size {}", num_senders, actor_ranks.size(), world_size);
}

std::string BroadcastTopology::to_json() const {
  return Json{{"world_size", world_size},   {"num_senders", num_senders},     {"endpoint", endpoint},
              {"actor_ranks", actor_ranks}, {"rollout_ranks", rollout_ranks}, {"node_ids", node_ids}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

void BroadcastTopology::check() const {
  // Each rank once, senders first.
  std::vector<int> all = actor_ranks;
  all.erase(std::remove(all.begin(), all.end(), -1), all.end());
  const std::size_t senders = all.size();
  all.insert(all.end(), rollout_ranks.begin(), rollout_ranks.end());
  bool is_sound = static_cast<int>(senders) == num_senders && static_cast<int>(all.size()) == world_size &&
                  node_ids.size() == all.size() && !actor_ranks.empty() && actor_ranks.front() == 0 &&
                  !rollout_ranks.empty() && !endpoint.empty();
  for (std::size_t i = 0; is_sound && i < all.size(); ++i) is_sound = all[i] == static_cast<int>(i);
  if (is_sound) return;
  throw ConfigError(
      formatted("broadcast topology: ranks, senders and nodes do not fit together in {}; take what build_topology() "
                "gave.",
                to_json().substr(0, 500)));
}

BroadcastTopology BroadcastTopology::from_json(std::string_view text) {
  constexpr std::string_view kWhat = "broadcast topology";
  const Json json = parsed(text, kWhat);
  BroadcastTopology topology;
  topology.world_size = integer(field(json, kWhat, "world_size"), kWhat, "world_size", 2);
  topology.num_senders = integer(field(json, kWhat, "num_senders"), kWhat, "num_senders", 1);
  topology.endpoint = text_of(field(json, kWhat, "endpoint"), kWhat, "endpoint");
  topology.actor_ranks = ranks_of(json, kWhat, "actor_ranks", -1);
  topology.rollout_ranks = ranks_of(json, kWhat, "rollout_ranks", 0);
  const Json& nodes = field(json, kWhat, "node_ids");
  if (!nodes.is_array()) refuse(kWhat, "node_ids", nodes, "a list");
  for (const Json& node : nodes) topology.node_ids.push_back(text_of(node, kWhat, "node_ids"));
  topology.check();
  return topology;
}

BroadcastTopology build_topology(const std::vector<WorkerMetadata>& actors, const std::vector<WorkerMetadata>& rollouts,
                                 bool multi_sender, SourceKind kind) {
  const auto ordered_actors = in_order(actors, WorkerRole::actor);
  const auto ordered_rollouts = in_order(rollouts, WorkerRole::rollout);
  const WorkerMetadata& root = *ordered_actors.front();
  if (root.endpoint.empty()) {
    throw ConfigError(
        formatted("build_topology: {} has no endpoint; it is the one that says where to meet.", root.who()));
  }
  for (const auto& workers : {ordered_actors, ordered_rollouts}) {
    for (const WorkerMetadata* worker : workers) {
      if (worker == &root || worker->endpoint.empty()) continue;
      throw ConfigError(formatted("build_topology: {} has the endpoint '{}' and is a second root beside {} with '{}'.",
                                  worker->who(), worker->endpoint, root.who(), root.endpoint));
    }
  }

  BroadcastTopology topology;
  topology.endpoint = root.endpoint;
  const bool has_relays = multi_sender && allows_relays(kind);
  int next = 0;
  for (const WorkerMetadata* actor : ordered_actors) {
    const bool sends = actor == &root || (has_relays && actor->node_id == root.node_id);
    topology.actor_ranks.push_back(sends ? next++ : -1);
    if (sends) topology.node_ids.push_back(actor->node_id);
  }
  topology.num_senders = next;
  for (const WorkerMetadata* rollout : ordered_rollouts) {
    topology.rollout_ranks.push_back(next++);
    topology.node_ids.push_back(rollout->node_id);
  }
  topology.world_size = next;
  return topology;
}

BroadcastTopology build_topology(const std::vector<WorkerMetadata>& actors,
                                 const std::vector<WorkerMetadata>& rollouts) {
  bool multi_sender = WorkerMetadata().multi_sender;
  for (const WorkerMetadata& actor : actors) {
    if (actor.index == 0) multi_sender = actor.multi_sender;
  }
  return build_topology(actors, rollouts, multi_sender);
}

}  // namespace dbg
