// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Hangs a Grafter on a Dumper whenever its knobs ask for one.
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/fence.h"
#include "base/fork_lock.h"
#include "base/log.h"
#include "dbg/error.h"
#include "dbg/grafter.h"
#include "dbg/runtime.h"
#include "dump/fork_generation.h"

namespace dbg {
namespace {

// What one Dumper's knobs made. The listener is called by one thread at a time.
struct Link {
  bool was_asked = false;
  DumperConfig told;
  std::string fault;                 // why `told` made no Grafter, though it asks for one
  std::shared_ptr<Grafter> grafter;  // under Links::mutex
};

struct Links {
  std::mutex mutex;
  std::map<const Dumper*, std::weak_ptr<Link>> by_dumper;  // under mutex; the Dumper's listener keeps the link alive
};

std::unique_ptr<Links> make_links() {
  return std::make_unique<Links>();
}

Links& links() noexcept {
  return *base::made_once<&make_links>();
}

std::mutex& links_mutex() noexcept {
  return links().mutex;
}

// Values from a folder: which of them nobody asked for is known when the program ends, and the global Dumper never
// does.
void close_those_from_folders() {
  std::vector<std::shared_ptr<Link>> held;  // outlives the lock: the last owner closes
  std::vector<std::shared_ptr<Grafter>> closing;
  {
    const std::lock_guard lock(links().mutex);
    for (const auto& [dumper, weak] : links().by_dumper) {
      const auto& link = held.emplace_back(weak.lock());
      if (link && link->grafter && link->grafter->config().role == GraftRole::file) closing.push_back(link->grafter);
    }
  }
  for (const auto& grafter : closing) grafter->close();
}

std::atomic<bool> closes_at_the_end{false};
std::atomic<unsigned> generation_that_closes{0};

void close_at_the_end() {
  if (closes_at_the_end.exchange(true)) return;
  generation_that_closes.store(fork_generation());
  static_cast<void>(std::atexit([] {
    // In a forked child a thread of the parent may hold the lock.
    if (fork_generation() != generation_that_closes.load()) return;
    static_cast<void>(base::run_fenced(close_those_from_folders));
  }));
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

// Throws, and has changed nothing, when the knobs can't be followed. Those that were there from the start are refused
// once: what is configured later is not, as long as it leaves them.
void follow(Dumper& dumper, Link& link, const DumperConfig& config) {
  if (link.was_asked && asks_for_the_same(link.told, config)) {
    if (!link.fault.empty()) base::log(LogLevel::error, "Grafter", "GRAFTING IS STILL OFF: {}", link.fault);
    return;
  }
  std::shared_ptr<Grafter> fresh;
  const bool is_first = !std::exchange(link.was_asked, true);
  try {
    if (config.grafter_enable) fresh = std::make_shared<Grafter>(GraftConfig::from(config));
    if (fresh && fresh->config().role == GraftRole::file) close_at_the_end();
  } catch (const Error& error) {
    if (is_first) {
      link.told = config;
      link.fault = error.what();
    }
    throw;
  }
  if (fresh) {
    dumper.set_interceptor(fresh->interceptor());
  } else if (link.grafter) {  // else it is not ours to take away
    dumper.set_interceptor({});
  }
  link.told = config;
  link.fault.clear();
  std::shared_ptr<Grafter> before;
  {
    base::hold_over_forks<&links_mutex>();
    const std::lock_guard lock(links_mutex());
    before = std::exchange(link.grafter, std::move(fresh));
  }
  if (before) before->close();
}

}  // namespace

void graft_by_knobs(Dumper& dumper) {
  auto link = std::make_shared<Link>();
  {
    base::hold_over_forks<&links_mutex>();
    const std::lock_guard lock(links_mutex());
    std::erase_if(links().by_dumper, [](const auto& entry) { return entry.second.expired(); });
    links().by_dumper[&dumper] = link;
  }
  dumper.set_config_listener([&dumper, link](const DumperConfig& config) { follow(dumper, *link, config); });
}

std::shared_ptr<Grafter> grafter_of(const Dumper& dumper) {
  base::hold_over_forks<&links_mutex>();
  const std::lock_guard lock(links_mutex());
  const auto found = links().by_dumper.find(&dumper);
  const std::shared_ptr<Link> link = found != links().by_dumper.end() ? found->second.lock() : nullptr;
  return link ? link->grafter : nullptr;
}

}  // namespace dbg
