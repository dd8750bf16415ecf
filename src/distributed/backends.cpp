// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// gloo with filled options, the registered factories, checking wrappers, process groups around them.
#include "distributed/backends.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <utility>

#include "base/fence.h"
#include "base/fork_lock.h"
#include "base/formatted.h"
#include "base/held_signals.h"
#include "base/left_behind.h"
#include "dbg/error.h"
#include "distributed/flight_recorder.h"
#include "distributed/nccl_backend.h"
#include "distributed/network_interfaces.h"

namespace dbg {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, BackendFactory, std::less<>> factories;
};

std::unique_ptr<Registry> make_registry() {
  return std::make_unique<Registry>();
}

Registry& registry() {
  return *base::made_once<&make_registry>();  // never destroyed: registrations may go while the process exits
}

}  // namespace

BackendRequest::BackendRequest() = default;
BackendRequest::BackendRequest(const BackendRequest&) = default;
BackendRequest::BackendRequest(BackendRequest&&) noexcept = default;
BackendRequest& BackendRequest::operator=(const BackendRequest&) = default;
BackendRequest& BackendRequest::operator=(BackendRequest&&) noexcept = default;
BackendRequest::~BackendRequest() = default;

BackendRegistration::BackendRegistration() noexcept = default;
BackendRegistration::BackendRegistration(std::string name) : name_(std::move(name)) {}
BackendRegistration::~BackendRegistration() {
  remove();
}
BackendRegistration::BackendRegistration(BackendRegistration&& other) noexcept
    : name_(std::exchange(other.name_, std::string())) {}
BackendRegistration& BackendRegistration::operator=(BackendRegistration&& other) noexcept {
  if (this != &other) {
    remove();
    name_ = std::exchange(other.name_, std::string());
  }
  return *this;
}

void BackendRegistration::remove() noexcept {
  if (name_.empty()) return;
  BackendFactory factory;  // destroyed after the lock is gone: it is foreign code
  const std::lock_guard lock(registry().mutex);
  if (const auto found = registry().factories.find(name_); found != registry().factories.end()) {
    factory.swap(found->second);
    registry().factories.erase(found);
  }
  name_.clear();
}

BackendRegistration register_backend(const std::string& name, BackendFactory factory) {
  if (name.empty() || name == "auto" || name == "gloo" || distributed::is_nccl(name)) {
    throw ConfigError(formatted("register_backend: '{}' is no name for a backend of your own.", name));
  }
  if (!factory) throw ConfigError(formatted("register_backend: the factory of '{}' is empty.", name));
  const std::lock_guard lock(registry().mutex);
  if (!registry().factories.emplace(name, std::move(factory)).second) {
    throw ConfigError(formatted("register_backend: '{}' is registered already; remove that registration first.", name));
  }
  return BackendRegistration(name);
}

namespace distributed {
namespace {

using c10d::ProcessGroupGloo;
using BackendType = c10d::ProcessGroup::BackendType;

// Torch 2.7's options have none of these.
template <class Options>
void describe(Options& options, const BackendRequest& request) {
  if constexpr (requires { options.group_name; }) options.group_name = request.group_name;
  if constexpr (requires { options.global_ranks_in_group; }) {
    options.global_ranks_in_group.assign(request.global_ranks.begin(), request.global_ranks.end());
  }
  if constexpr (requires { options.group_desc; }) options.group_desc = request.group_desc;
}

// Torch 2.7's backends have none but what their options said; each operation brings its own.
template <class Backend>
void set_timeout(Backend& backend, std::chrono::milliseconds timeout) {
  if constexpr (requires { backend.setTimeout(timeout); }) backend.setTimeout(timeout);
}

// For gloo's own words of who is missing, which come when the time is up.
constexpr std::chrono::milliseconds kForGloosWords{300};

c10::intrusive_ptr<ProcessGroupGloo> connect_gloo(const BackendRequest& request, bool with_labels) {
  const auto options = ProcessGroupGloo::Options::create(request.timeout);
  const std::vector<std::string> interfaces = interface_names(request.interface);
  for (const std::string& name : interfaces) {
    options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (interfaces.empty()) options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
  options->threads = static_cast<int>(options->devices.size()) * 2;
  // Before the construction: that is when the Flight Recorder's pg_config is written.
  if (with_labels) describe(*options, request);
  return c10::make_intrusive<ProcessGroupGloo>(request.store, request.rank, request.size, options);
}

// On a thread of its own: gloo waits five times its timeout for a member that has left its address and then does not
// connect, and the default device waits for the resolver.
c10::intrusive_ptr<c10d::Backend> make_gloo(const BackendRequest& request, bool with_labels) {
  // Of the threads that gloo starts here: they write to peers that may be gone, and without any care for the signal.
  const base::NoSigpipe for_its_threads;
  // With the thread that connects, which may be left behind.
  struct Connecting {
    c10::intrusive_ptr<ProcessGroupGloo> backend;
    std::exception_ptr error;
  };
  const auto connecting = std::make_shared<Connecting>();
  const auto deadline = std::chrono::steady_clock::now() + request.timeout + kForGloosWords;
  const bool is_over = base::finishes_by(deadline, [connecting, request, with_labels] {
    try {
      connecting->backend = connect_gloo(request, with_labels);
    } catch (...) {
      connecting->error = std::current_exception();
    }
  });
  if (!is_over) {
    throw std::runtime_error(
        formatted("gloo has not connected all {} members within {} ms: one that had left its address does not go on "
                  "(it ended, is stopped, or can't reach this one), or a host's name is looked up in vain",
                  request.size, request.timeout.count()));
  }
  if (connecting->error) std::rethrow_exception(connecting->error);
  if (with_labels) describe_recorded_group(request.group_name, request.group_desc, request.global_ranks);
  return connecting->backend;
}

std::optional<BackendFactory> factory_of(const std::string& kind) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().factories.find(kind);
  if (found == registry().factories.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> known_backends() {
  std::vector<std::string> names{"auto", "gloo", "nccl", "nccl2", "nccl-legacy"};
  const std::lock_guard lock(registry().mutex);
  for (const auto& [name, factory] : registry().factories) names.push_back(name);
  return names;
}

c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& kind, const BackendRequest& request,
                                               bool with_labels) {
  if (kind == "gloo") return make_gloo(request, with_labels);
  if (is_nccl(kind)) return make_nccl_backend(kind, request, with_labels);
  const auto factory = factory_of(kind);
  if (!factory) throw ConfigError(formatted("the registration of the backend '{}' is gone.", kind));
  auto backend = (*factory)(request);  // no lock held: foreign code
  if (!backend) throw ConfigError(formatted("the factory of the backend '{}' returned null.", kind));
  if (backend->getRank() != request.rank || backend->getSize() != request.size) {
    throw ConfigError(formatted("the factory of the backend '{}' made rank {} of {}, where {} of {} was asked for.",
                                kind, backend->getRank(), backend->getSize(), request.rank, request.size));
  }
  return backend;
}

}  // namespace

bool is_nccl(std::string_view kind) noexcept {
  return kind == "nccl" || kind == "nccl2" || kind == "nccl-legacy";
}

std::string resolve_backend(const std::string& kind) {
  if (kind == "auto") return why_no_nccl().empty() ? "nccl" : "gloo";
  const std::vector<std::string> known = known_backends();
  if (std::find(known.begin(), known.end(), kind) == known.end()) {
    throw ConfigError(formatted("the backend '{}' is not known; there are: {}. register_backend() adds others.", kind,
                                fmt::join(known, ", ")));
  }
  return kind;
}

MadeHalf make_half(const std::string& kind, const BackendRequest& request, std::chrono::milliseconds operation_timeout,
                   bool with_labels, const std::string& wrapper_prefix) {
  auto backend = make_backend(kind, request, with_labels);
  set_backend_timeout(*backend, operation_timeout);
  if (with_labels) label_backend(*backend, request.group_name, request.group_desc);
  c10::intrusive_ptr<c10d::Backend> helper;
  if (!wrapper_prefix.empty()) {
    helper = make_helper(request, operation_timeout, with_labels, wrapper_prefix);
    backend = c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, helper);
  }
  auto group = wrap_backend(backend, kind, request.store);
  // After setBackend: a description set before never reaches the backend.
  if (with_labels) label_group(*group, request.group_name, request.group_desc);
  return {std::move(group), std::move(backend), kind, std::move(helper)};
}

c10::intrusive_ptr<c10d::Backend> make_helper(const BackendRequest& request,
                                              std::chrono::milliseconds operation_timeout, bool with_labels,
                                              const std::string& prefix) {
  BackendRequest own = request;
  own.group_name = request.group_name + ".check";
  own.store = c10::make_intrusive<c10d::PrefixStore>(prefix, request.store);
  own.options = nullptr;
  auto helper = make_gloo(own, with_labels);
  set_backend_timeout(*helper, operation_timeout);
  if (with_labels) label_backend(*helper, own.group_name, own.group_desc);
  return helper;
}

void set_backend_timeout(c10d::Backend& backend, std::chrono::milliseconds timeout) {
  // A vendor's backend need not have one.
  static_cast<void>(base::run_fenced([&] { set_timeout(backend, timeout); }));
}

c10::intrusive_ptr<c10d::ProcessGroup> wrap_backend(const c10::intrusive_ptr<c10d::Backend>& backend,
                                                    const std::string& kind,
                                                    const c10::intrusive_ptr<c10d::Store>& store) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  const BackendType type = is_nccl(kind) ? BackendType::NCCL : c10d::ProcessGroup::strToBackendType(kind);
  // setBackend() gives the backend the group's device, and an adopted one keeps its own.
  group->setBoundDeviceId(backend->getBoundDeviceId());
  group->setDefaultBackend(type);
  if (type != BackendType::NCCL) group->setBackend(c10::DeviceType::CPU, type, backend);
  group->setBackend(c10::DeviceType::CUDA, type, backend);
  return group;
}

void label_backend(c10d::Backend& backend, const std::optional<std::string>& name, const std::string& label) {
  if (name) backend.setGroupUid(*name);
  backend.setGroupDesc(label);
  if (const auto* wrapper = dynamic_cast<const c10d::ProcessGroupWrapper*>(&backend)) {
    label_backend(*wrapper->getWrappedPg(), name, label);
  }
}

std::vector<c10::intrusive_ptr<c10d::Backend>> backends_of(c10d::ProcessGroup& group) {
  std::vector<c10::intrusive_ptr<c10d::Backend>> all;
  for (const c10::Device& device : group.getDeviceTypes()) {
    auto backend = group.getBackend(device.type());
    if (backend && std::find(all.begin(), all.end(), backend) == all.end()) all.push_back(std::move(backend));
  }
  return all;
}

void label_group(c10d::ProcessGroup& group, const std::optional<std::string>& name, const std::string& label) {
  if (name) group.setGroupName(*name);
  group.setGroupDesc(label);
  for (const auto& backend : backends_of(group)) label_backend(*backend, name, label);
}

}  // namespace distributed
}  // namespace dbg
