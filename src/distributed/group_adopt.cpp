// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Takes over groups and backends that somebody else made.
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "base/fence.h"
#include "base/formatted.h"
#include "base/log.h"
#include "codec/byte_source.h"
#include "dbg/error.h"
#include "distributed/backends.h"
#include "distributed/flight_recorder.h"
#include "distributed/group_builder.h"
#include "distributed/labels.h"
#include "distributed/network_interfaces.h"
#include "distributed/part_name.h"
#include "distributed/rendezvous.h"
#include "distributed/trace_info.h"

namespace dbg {

using distributed::OwnedHalf;

namespace {

using distributed::kPart;

constexpr std::chrono::minutes kAdoptedTimeout{5};

std::string name_for_label(const std::string& asked) {
  std::string clean = distributed::sanitised_group_name(asked);
  if (clean != asked && !asked.empty()) {
    base::log(LogLevel::warning, kPart, "the group name '{}' can't be a label as it is; it is labelled '{}'",
              codec::printable(asked), clean);
  }
  return clean;
}

std::string name_of(const c10d::ProcessGroup& group) {
  std::string name;
  // Throws when it has none.
  static_cast<void>(base::run_fenced([&] { name = group.getGroupName(); }));
  return name;
}

// What operations of this half go to: the cpu's backend on the cpu half, the GPU's on the other where there is one.
c10::intrusive_ptr<c10d::Backend> backend_for(c10d::ProcessGroup& group, const std::string& half) {
  const std::vector<c10::Device> devices = group.getDeviceTypes();
  const auto has = [&](c10::DeviceType type) {
    return std::any_of(devices.begin(), devices.end(), [&](const c10::Device& one) { return one.type() == type; });
  };
  if (half == "device" && has(c10::DeviceType::CUDA)) return group.getBackend(c10::DeviceType::CUDA);
  if (has(c10::DeviceType::CPU)) return group.getBackend(c10::DeviceType::CPU);
  if (half == "device" && !devices.empty()) return group.getBackend(devices.front().type());
  return {};
}

std::shared_ptr<OwnedHalf> adopt_half(const GroupCoordinator::Impl& impl, const std::string& half,
                                      const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const int size = static_cast<int>(impl.ranks.size());
  if (group->getSize() != size || group->getRank() != impl.rank_in_group) {
    throw ConfigError(formatted("adopt '{}': the {} group is rank {} of {}, where rank {} of {} is expected.",
                                impl.name, half, group->getRank(), group->getSize(), impl.rank_in_group, size));
  }
  auto owned = std::make_shared<OwnedHalf>();
  owned->half = half;
  owned->is_adopted = true;
  owned->shown.group = group;
  owned->state.backend = backend_for(*group, half);
  if (!owned->state.backend) {
    throw ConfigError(formatted("adopt '{}': the {} group has no backend for it.", impl.name, half));
  }
  owned->kind = owned->state.backend->getBackendName();
  owned->state.label = distributed::label_of(impl.name, half);
  owned->state.name = name_of(*group);
  owned->state.ranks = impl.ranks;
  owned->state.rank_in_group = impl.rank_in_group;
  owned->state.timeout = impl.timeout;
  if (impl.world) owned->state.world_size = impl.world->world_size();
  // A name that tools and peers know stays; without one its entries in a recorder could not be told apart.
  std::optional<std::string> fresh_name;
  if (owned->state.name.empty()) {
    fresh_name = distributed::ranks_text(impl.ranks);
    fresh_name = formatted("{}@{}.adopted", owned->state.label, *fresh_name);
    owned->state.name = *fresh_name;
  }
  distributed::label_group(*group, fresh_name, owned->state.label);
  if (owned->kind == "gloo") {
    distributed::describe_recorded_group(owned->state.name, owned->state.label, impl.ranks);
  }
  owned->listing = distributed::list_in_traces(owned->state, owned->kind);
  return owned;
}

// The missing cpu half is a group of its own among the same ranks.
std::shared_ptr<OwnedHalf> make_cpu_half(GroupCoordinator::Impl& impl) {
  const auto began = std::chrono::steady_clock::now();
  distributed::require_own_process(*impl.world, "adopt", impl.name);
  GroupOptions options;
  options.group_name = impl.name;
  distributed::HandshakeRequest request;
  request.name = impl.name;
  request.ranks = impl.ranks;
  request.rank_in_group = impl.rank_in_group;
  request.timeout = impl.timeout;
  request.settings = {{"device backend", "adopted"}, {"cpu backend", "gloo"}};
  request.binds_to_loopback = distributed::binds_to_loopback(impl.world->interface());
  const auto agreed = distributed::shake_hands(impl.world->store(), impl.world->key_prefix(), request);
  impl.common_keys = agreed.keys;
  const distributed::BuildPlan plan{impl, options, agreed.generation, began + impl.timeout};
  return distributed::build_half(plan, "cpu", "gloo");
}

}  // namespace

std::shared_ptr<GroupCoordinator> GroupCoordinator::adopt(const c10::intrusive_ptr<c10d::ProcessGroup>& device,
                                                          const c10::intrusive_ptr<c10d::ProcessGroup>& cpu,
                                                          const AdoptOptions& options, const World* world) {
  if (!device) throw ConfigError("adopt: the device group is null.");
  auto impl = std::make_unique<Impl>();
  impl->name = name_for_label(options.group_name);
  impl->timeout = distributed::timeout_or(options.timeout, kAdoptedTimeout, impl->name);
  impl->rank_in_group = device->getRank();
  impl->ranks = options.ranks;
  if (impl->ranks.empty()) {
    impl->ranks.resize(static_cast<std::size_t>(device->getSize()));
    std::iota(impl->ranks.begin(), impl->ranks.end(), 0);
  }
  if (impl->ranks.size() != static_cast<std::size_t>(device->getSize())) {
    throw ConfigError(formatted("adopt '{}': {} ranks are given for a group of {}.", impl->name, impl->ranks.size(),
                                device->getSize()));
  }
  if (world != nullptr) {
    impl->world = *world;
    impl->local_rank = world->local_rank();
    // Two groups that leave out their ranks would both be 0 to n - 1, and meet in the store.
    const int own = impl->ranks[static_cast<std::size_t>(impl->rank_in_group)];
    if (own != world->rank()) {
      throw ConfigError(formatted(
          "adopt '{}': this is rank {} of the group, hence global rank {} by the ranks [{}], and rank {} of the "
          "world: pass the group's global ranks.",
          impl->name, impl->rank_in_group, own, fmt::join(impl->ranks, ", "), world->rank()));
    }
  }
  impl->device = adopt_half(*impl, "device", device);
  if (cpu) {
    impl->cpu = cpu == device ? impl->device : adopt_half(*impl, "cpu", cpu);
  } else if (world != nullptr) {
    impl->cpu = make_cpu_half(*impl);
  } else if (backend_for(*device, "cpu")) {
    impl->cpu = impl->device;
  } else {
    throw ConfigError(
        formatted("adopt '{}': there is no cpu group, the device group has no backend for the cpu, and no "
                  "world is given to make one from: pass either.",
                  impl->name));
  }
  return std::shared_ptr<GroupCoordinator>(new GroupCoordinator(std::move(impl)));
}

std::shared_ptr<GroupCoordinator> GroupCoordinator::adopt(const c10::intrusive_ptr<c10d::Backend>& device,
                                                          const c10::intrusive_ptr<c10d::Backend>& cpu,
                                                          const AdoptOptions& options, const World* world) {
  if (!device) throw ConfigError("adopt: the device backend is null.");
  const auto wrapped = [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    return backend ? distributed::wrap_backend(backend, backend->getBackendName(), {})
                   : c10::intrusive_ptr<c10d::ProcessGroup>();
  };
  const auto device_group = wrapped(device);
  return adopt(device_group, cpu == device ? device_group : wrapped(cpu), options, world);
}

std::shared_ptr<GroupCoordinator> GroupCoordinator::adopt_registered(const std::string& registered_name,
                                                                     const AdoptOptions& options, const World* world) {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  if (const auto cause = base::run_fenced([&] { group = c10d::resolve_process_group(registered_name); })) {
    throw ConfigError(formatted("adopt: no process group is registered as '{}': {}", registered_name, *cause));
  }
  return adopt(group, {}, options, world);
}

}  // namespace dbg
