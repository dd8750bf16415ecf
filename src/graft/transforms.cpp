// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Transforms by name.
#include "graft/transforms.h"

#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_lock.h"
#include "base/formatted.h"
#include "dbg/error.h"
#include "graft/built_in_transforms.h"

namespace dbg {
namespace {

struct Registered {
  std::uint64_t id = 0;
  std::shared_ptr<const GraftTransform> transform;
};

struct Registry {
  std::mutex mutex;
  std::uint64_t last_id = 0;                               // under mutex
  std::map<std::string, Registered, std::less<>> by_name;  // under mutex
};

std::unique_ptr<Registry> make_registry() {
  return std::make_unique<Registry>();
}

Registry& registry() noexcept {
  return *base::made_once<&make_registry>();  // never destroyed: registrations may go while the process exits
}

std::mutex& registry_mutex() noexcept {
  return registry().mutex;
}

}  // namespace

void GraftTransformHandle::remove() noexcept {
  std::shared_ptr<const GraftTransform> removed;  // outlives the lock: its destructor is foreign code
  base::hold_over_forks<&registry_mutex>();
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().by_name.find(name_);
  if (found == registry().by_name.end() || found->second.id != id_) return;
  removed = std::move(found->second.transform);
  registry().by_name.erase(found);
}

GraftTransformHandle register_graft_transform(const std::string& name, GraftTransform transform) {
  if (name.empty() || name.find(':') != std::string::npos || graft::is_built_in(name)) {
    throw ConfigError(
        formatted("register_graft_transform: '{}' is no name for a transform of your own: it must not be empty, hold a "
                  "colon, or be one of {}",
                  name, fmt::join(graft::built_in_names(), ", ")));
  }
  if (!transform) throw ConfigError(formatted("register_graft_transform: the function of '{}' is empty", name));
  Registered fresh{0, std::make_shared<const GraftTransform>(std::move(transform))};
  GraftTransformHandle handle;
  handle.name_ = name;
  base::hold_over_forks<&registry_mutex>();
  const std::lock_guard lock(registry().mutex);
  fresh.id = handle.id_ = registry().last_id + 1;
  if (!registry().by_name.emplace(name, std::move(fresh)).second) {
    throw ConfigError(
        formatted("register_graft_transform: '{}' is registered already; remove that registration first", name));
  }
  ++registry().last_id;
  return handle;
}

namespace graft {

void check_built_in(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (name.empty() || is_built_in(name.substr(0, colon))) {
    static_cast<void>(make_built_in(name));
  } else if (colon != std::string::npos) {
    throw ConfigError(
        formatted("'{}' is none: one's own have no colon in their names, and of those that have there are {}", name,
                  fmt::join(built_in_names(), ", ")));
  }
}

NamedTransform find_transform(const std::string& name) {
  if (name.empty() || is_built_in(name.substr(0, name.find(':')))) return {make_built_in(name), true};
  std::vector<std::string> names;
  base::hold_over_forks<&registry_mutex>();
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().by_name.find(name);
    if (found != registry().by_name.end()) {
      return {[transform = found->second.transform](const GraftInput& input) { return (*transform)(input); }, false};
    }
    for (const auto& [known, registered] : registry().by_name) names.push_back(known);
  }
  for (const std::string_view known : built_in_names()) names.emplace_back(known);
  throw ConfigError(formatted("no transform '{}' is registered (register_graft_transform); there are: {}", name,
                              fmt::join(names, ", ")));
}

}  // namespace graft
}  // namespace dbg
