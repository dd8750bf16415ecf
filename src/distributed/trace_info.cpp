// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A list of the process's groups, and its text for torch's profiler.
#include "distributed/trace_info.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/fork_lock.h"
#include "dbg/error.h"
#include "dbg/group_coordinator.h"

// Exported by libtorch; the header that declares it wants those of Kineto on the include path.
namespace torch::autograd::profiler {
void addMetadataJson(const std::string& key, const std::string& value);
}  // namespace torch::autograd::profiler

namespace dbg {
namespace distributed {
namespace {

using nlohmann::json;

struct Listed {
  std::string name;
  std::string label;
  std::string kind;
  std::vector<int> ranks;
  int rank = 0;
  int world_size = 0;
};

struct List {
  std::mutex mutex;
  std::uint64_t next = 0;
  std::map<std::uint64_t, Listed> groups;  // in the order of their making
};

std::unique_ptr<List> make_list() {
  return std::make_unique<List>();
}

List& list() {
  return *base::made_once<&make_list>();  // never destroyed: groups may go while the process exits
}

}  // namespace

std::shared_ptr<void> list_in_traces(const GroupHalf& half, const std::string& kind) {
  const std::lock_guard lock(list().mutex);
  const std::uint64_t place = list().next++;
  list().groups[place] = {half.name, half.label, kind, half.ranks, half.global_rank(), half.world_size};
  return {nullptr, [place](void*) {
            const std::lock_guard taken(list().mutex);
            list().groups.erase(place);
          }};
}

std::string distributed_info_json() {
  const std::lock_guard lock(list().mutex);
  const auto& groups = list().groups;
  if (groups.empty()) return {};
  json config = json::array();
  int world_size = 0;
  int largest = 0;
  for (const auto& [place, group] : groups) {
    config.push_back({{"pg_name", group.name},
                      {"pg_desc", group.label},
                      {"backend_config", group.kind},
                      {"pg_size", group.ranks.size()},
                      {"ranks", group.ranks}});
    world_size = std::max(world_size, group.world_size);
    largest = std::max(largest, static_cast<int>(group.ranks.size()));
  }
  const Listed& first = groups.begin()->second;
  return json{{"backend", first.kind},
              {"rank", first.rank},
              {"world_size", world_size > 0 ? world_size : largest},
              {"pg_count", groups.size()},
              {"pg_config", config}}
      .dump();
}

}  // namespace distributed

void GroupCoordinator::annotate_trace() {
  const std::string info = distributed::distributed_info_json();
  if (!info.empty()) torch::autograd::profiler::addMetadataJson("distributedInfo", info);
}

}  // namespace dbg
