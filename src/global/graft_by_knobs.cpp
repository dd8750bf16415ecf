// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Hangs a Grafter on a Dumper whenever its knobs ask for one.
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fork_lock.h"
#include "dbg/grafter.h"
#include "dbg/runtime.h"

namespace dbg {
namespace {

// What one Dumper's knobs made. The listener is called by one thread at a time.
struct Link {
  DumperConfig told;
  std::shared_ptr<Grafter> grafter;
};

struct Links {
  std::mutex mutex;
  std::map<const Dumper*, std::weak_ptr<Link>> by_dumper;  // under mutex; the Dumper's listener keeps the link alive
};

std::unique_ptr<Links> make_links() {
  return std::make_unique<Links>();
}

Links& links() {
  return *base::made_once<&make_links>();
}

// What a Grafter depends on.
bool asks_for_the_same(DumperConfig a, const DumperConfig& b) {
  DumperConfig other = b;
  for (DumperConfig* config : {&a, &other}) {
    const DumperConfig all = std::exchange(*config, DumperConfig());
    config->strict = all.strict;
    config->grafter_enable = all.grafter_enable;
    config->grafter_role = all.grafter_role;
    config->grafter_b2t_filter = all.grafter_b2t_filter;
    config->grafter_t2b_filter = all.grafter_t2b_filter;
    config->grafter_master_address = all.grafter_master_address;
    config->grafter_master_port = all.grafter_master_port;
    config->grafter_baseline_world_size = all.grafter_baseline_world_size;
    config->grafter_target_world_size = all.grafter_target_world_size;
    config->grafter_backend = all.grafter_backend;
    config->grafter_group_name = all.grafter_group_name;
    config->grafter_timeout = all.grafter_timeout;
    config->grafter_transform = all.grafter_transform;
    config->grafter_folder = all.grafter_folder;
    config->grafter_max_mib = all.grafter_max_mib;
  }
  return a == other;
}

void follow(Dumper& dumper, Link& link, const DumperConfig& config) {
  if (asks_for_the_same(link.told, config)) return;
  std::shared_ptr<Grafter> fresh;
  if (config.grafter_enable) fresh = std::make_shared<Grafter>(GraftConfig::from(config));
  dumper.set_interceptor(fresh ? fresh->interceptor() : ValueInterceptor());
  std::shared_ptr<Grafter> before;
  {
    const std::lock_guard lock(links().mutex);
    link.told = config;
    before = std::exchange(link.grafter, std::move(fresh));
  }
  if (before) before->close();
}

}  // namespace

void graft_by_knobs(Dumper& dumper) {
  auto link = std::make_shared<Link>();
  {
    const std::lock_guard lock(links().mutex);
    std::erase_if(links().by_dumper, [](const auto& entry) { return entry.second.expired(); });
    links().by_dumper[&dumper] = link;
  }
  dumper.set_config_listener([&dumper, link](const DumperConfig& config) { follow(dumper, *link, config); });
}

std::shared_ptr<Grafter> grafter_of(const Dumper& dumper) {
  const std::lock_guard lock(links().mutex);
  const auto found = links().by_dumper.find(&dumper);
  const std::shared_ptr<Link> link = found != links().by_dumper.end() ? found->second.lock() : nullptr;
  return link ? link->grafter : nullptr;
}

}  // namespace dbg
