// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Topology as a table: who gets which rank, and which inputs are refused with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/formatted.h"
#include "dbg/broadcast_topology.h"
#include "dbg/error.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<WorkerMetadata> workers(WorkerRole role, const std::vector<std::string>& nodes) {
  std::vector<WorkerMetadata> all;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    WorkerMetadata worker;
    worker.role = role;
    worker.index = static_cast<int>(i);
    worker.num_of_role = static_cast<int>(nodes.size());
    worker.node_id = nodes[i];
    if (role == WorkerRole::actor && i == 0) worker.endpoint = "weights";
    all.push_back(worker);
  }
  return all;
}

std::vector<WorkerMetadata> actors(const std::vector<std::string>& nodes) {
  return workers(WorkerRole::actor, nodes);
}
std::vector<WorkerMetadata> rollouts(const std::vector<std::string>& nodes) {
  return workers(WorkerRole::rollout, nodes);
}

struct Row {
  std::string name;
  std::vector<std::string> actor_nodes;
  std::vector<std::string> rollout_nodes;
  bool multi_sender;
  SourceKind kind;
  std::vector<int> actor_ranks;
  std::vector<int> rollout_ranks;
};

TEST(TopologyTest, RanksByTheTable) {
  const auto full = SourceKind::full_weights;
  const std::vector<Row> rows{
      {"one and one", {"a"}, {"b"}, true, full, {0}, {1}},
      {"single", {"a", "a", "a"}, {"b", "b"}, false, full, {0, -1, -1}, {1, 2}},
      {"multi", {"a", "a", "a"}, {"b", "b"}, true, full, {0, 1, 2}, {3, 4}},
      {"no neighbour", {"a", "c", "d"}, {"b"}, true, full, {0, -1, -1}, {1}},
      {"others between", {"a", "c", "a", "c", "a"}, {"b", "d"}, true, full, {0, -1, 1, -1, 2}, {3, 4}},
      {"same node for all", {"a", "a"}, {"a", "a"}, true, full, {0, 1}, {2, 3}},
      {"no relays for deltas", {"a", "a"}, {"b"}, true, SourceKind::delta, {0, -1}, {1}},
  };
  for (const Row& row : rows) {
    const BroadcastTopology topology =
        build_topology(actors(row.actor_nodes), rollouts(row.rollout_nodes), row.multi_sender, row.kind);
    EXPECT_EQ(topology.actor_ranks, row.actor_ranks) << row.name;
    EXPECT_EQ(topology.rollout_ranks, row.rollout_ranks) << row.name;
    int senders = 0;
    for (const int rank : row.actor_ranks) senders += rank >= 0 ? 1 : 0;
    EXPECT_EQ(topology.num_senders, senders) << row.name;
    EXPECT_EQ(topology.world_size, senders + static_cast<int>(row.rollout_nodes.size())) << row.name;
    EXPECT_EQ(topology.endpoint, "weights") << row.name;
    // num_senders goes to everybody, and the nodes are those of the ranks.
    for (std::size_t i = 0; i < row.actor_nodes.size(); ++i) {
      const WorkerPlace place = topology.place_of(WorkerRole::actor, static_cast<int>(i));
      EXPECT_EQ(place.num_senders, senders) << row.name;
      if (place.rank >= 0) {
        EXPECT_EQ(topology.node_ids.at(static_cast<std::size_t>(place.rank)), row.actor_nodes[i]) << row.name;
      }
    }
    for (std::size_t i = 0; i < row.rollout_nodes.size(); ++i) {
      const WorkerPlace place = topology.place_of(WorkerRole::rollout, static_cast<int>(i));
      EXPECT_EQ(place.world_size, topology.world_size) << row.name;
      EXPECT_EQ(topology.node_ids.at(static_cast<std::size_t>(place.rank)), row.rollout_nodes[i]) << row.name;
    }
  }
}

TEST(TopologyTest, TheOrderOfTheListsDoesNotCount) {
  auto shuffled = actors({"a", "b", "a"});
  std::swap(shuffled[0], shuffled[2]);
  const BroadcastTopology topology = build_topology(shuffled, rollouts({"c"}), true);
  EXPECT_THAT(topology.actor_ranks, ElementsAre(0, -1, 1));
}

TEST(TopologyTest, ManySendersAreTheDefaultAndActorZeroDecides) {
  EXPECT_TRUE(WorkerMetadata().multi_sender);
  auto all = actors({"a", "a"});
  EXPECT_EQ(build_topology(all, rollouts({"b"})).num_senders, 2);
  all[1].multi_sender = false;  // not the one that is asked
  EXPECT_EQ(build_topology(all, rollouts({"b"})).num_senders, 2);
  all[0].multi_sender = false;
  EXPECT_EQ(build_topology(all, rollouts({"b"})).num_senders, 1);
}

TEST(TopologyTest, WrongInputIsNamed) {
  using List = std::vector<WorkerMetadata>;
  struct Wrong {
    std::function<void(List&, List&)> change;
    std::string words;
  };
  const std::vector<Wrong> wrongs{
      {[](List& a, List&) { a.clear(); }, "no actor"},
      {[](List&, List& r) { r.clear(); }, "no rollout"},
      {[](List& a, List&) { a[0].endpoint.clear(); }, "actor 0 on node a has no endpoint"},
      {[](List& a, List&) { a[1].endpoint = "mine"; }, "second root"},
      {[](List&, List& r) { r[0].endpoint = "mine"; }, "second root"},
      {[](List& a, List&) { a[1].index = 0; }, "actor 0 is there twice"},
      {[](List& a, List&) { a[1].index = 2; }, "outside 0 to 1"},
      {[](List& a, List&) { a.pop_back(); }, "was told of 2 actors, and there is metadata of 1"},
      {[](List&, List& r) { r[1].num_of_role = 3; }, "rollout 1 on node b was told of 3 rollouts"},
      {[](List& a, List& r) { std::swap(a[1], r[1]); }, "stands among the"},
  };
  for (const Wrong& wrong : wrongs) {
    auto a = actors({"a", "a"});
    auto r = rollouts({"b", "b"});
    wrong.change(a, r);
    try {
      build_topology(a, r, true);
      ADD_FAILURE() << "accepted: " << wrong.words;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(wrong.words));
    }
  }
}

TEST(TopologyTest, MetadataAndTopologyTravelAsJson) {
  WorkerMetadata worker = actors({"a"})[0];
  worker.multi_sender = false;
  const WorkerMetadata back = WorkerMetadata::from_json(worker.to_json());
  EXPECT_EQ(back.to_json(), worker.to_json());
  EXPECT_FALSE(back.multi_sender);
  EXPECT_EQ(back.endpoint, "weights");

  const BroadcastTopology topology = build_topology(actors({"a", "b", "a"}), rollouts({"c", "d"}), true);
  const BroadcastTopology same = BroadcastTopology::from_json(topology.to_json());
  EXPECT_EQ(same.to_json(), topology.to_json());
  EXPECT_EQ(same.describe(), "2 of 3 actors send, world_size 4");
  EXPECT_EQ(same.who(1), "actor 2 on node a");
  EXPECT_EQ(same.who(3), "rollout 1 on node d");
  EXPECT_THROW(same.who(4), ConfigError);
  EXPECT_THROW(same.who(-1), ConfigError);
  EXPECT_THROW(same.place_of(WorkerRole::rollout, 2), ConfigError);
}

TEST(TopologyTest, JsonThatMakesNoSenseIsRefused) {
  for (const char* text :
       {"", "[]", R"({"role":"actor"})", R"({"role":"king","index":0,"num_of_role":1,"node_id":"a"})",
        R"({"role":"actor","index":-1,"num_of_role":1,"node_id":"a"})",
        R"({"role":"actor","index":"0","num_of_role":1,"node_id":"a"})",
        R"({"role":"actor","index":0,"num_of_role":0,"node_id":"a"})",
        R"({"role":"actor","index":0,"num_of_role":1,"node_id":7})",
        R"({"role":"actor","index":0,"num_of_role":1,"node_id":"a","multi_sender":"yes"})"}) {
    EXPECT_THROW(WorkerMetadata::from_json(text), ConfigError) << text;
  }
  const std::string good = build_topology(actors({"a"}), rollouts({"b"}), true).to_json();
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"actor_ranks\":[0]", "\"actor_ranks\":[1]"},
                                                        {"\"num_senders\":1", "\"num_senders\":2"},
                                                        {"\"world_size\":2", "\"world_size\":3"},
                                                        {"\"rollout_ranks\":[1]", "\"rollout_ranks\":[0]"},
                                                        {"[\"a\",\"b\"]", "[\"a\"]"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), bad.npos) << from;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_THROW(BroadcastTopology::from_json(bad), ConfigError) << bad;
  }
}

TEST(TopologyTest, TheNodeIsThisMachineAndStays) {
  EXPECT_EQ(this_node_id(), this_node_id());
  EXPECT_GT(this_node_id().size(), 1U);
}

TEST(TopologyTest, OneMadeByHandIsChecked) {
  const BroadcastTopology good = build_topology(actors({"a", "a"}), rollouts({"b"}), true);
  EXPECT_NO_THROW(good.check());
  const std::vector<std::function<void(BroadcastTopology&)>> changes{
      [](auto& t) { t.num_senders = 0; },     [](auto& t) { t.world_size = 7; },
      [](auto& t) { t.actor_ranks = {}; },    [](auto& t) { t.actor_ranks = {1, 0}; },
      [](auto& t) { t.node_ids.pop_back(); }, [](auto& t) { t.rollout_ranks = {}; },
      [](auto& t) { t.endpoint.clear(); },
  };
  for (const auto& change : changes) {
    BroadcastTopology bad = good;
    change(bad);
    EXPECT_THROW(bad.check(), ConfigError);
  }
}

}  // namespace
}  // namespace dbg
