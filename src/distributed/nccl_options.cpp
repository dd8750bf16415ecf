// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Fills ncclConfig_t and torch's options around it.
#include "distributed/nccl_options.h"

#include <memory>
#include <mutex>
#include <set>

#include "base/fork_lock.h"
#include "dbg/error.h"

namespace dbg::distributed {
namespace {

// Whether a field is there is asked of the types, not of version numbers. Templates, so that the branch not taken is
// not compiled.
template <class Config>
constexpr bool has_communicator_name = requires(Config& config) {
  config.commName;
};

template <class Config>
void set_communicator_name(Config& config, const std::string& name) {
  if constexpr (has_communicator_name<Config>) {
    if (config.commName == nullptr) config.commName = interned_text(name);
  }
}

template <class Config>
std::string get_communicator_name(const Config& config) {
  if constexpr (has_communicator_name<Config>) {
    return config.commName != nullptr ? config.commName : "";
  } else {
    return {};
  }
}

struct InternedTexts {
  std::mutex mutex;
  std::set<std::string> texts;
};

// Never destroyed: communicators may outlive every static object.
std::unique_ptr<InternedTexts> make_interned_texts() {
  return std::make_unique<InternedTexts>();
}

template <class Options>
void set_description(Options& options, const std::string& label) {
  if constexpr (requires { options.group_desc; }) options.group_desc = label;
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> make_nccl_options(const BackendRequest& request, bool with_labels) {
  using Options = c10d::ProcessGroupNCCL::Options;
  c10::intrusive_ptr<Options> options;
  if (request.options) {
    const auto* given = dynamic_cast<const Options*>(request.options.get());
    if (given == nullptr) {
      throw ConfigError(
          "the options passed for the device backend are not ProcessGroupNCCL::Options, and the backend is "
          "nccl.");
    }
    options = c10::make_intrusive<Options>(*given);
  } else {
    options = Options::create();
  }
  options->timeout = request.timeout;
  if (!with_labels) return options;
  options->group_name = request.group_name;
  options->global_ranks_in_group.assign(request.global_ranks.begin(), request.global_ranks.end());
  set_description(*options, request.group_desc);
  set_communicator_name(options->config, request.group_desc);
  return options;
}

bool nccl_names_communicators() noexcept {
  return has_communicator_name<ncclConfig_t>;
}

std::string communicator_name_of(const c10d::ProcessGroupNCCL::Options& options) {
  return get_communicator_name(options.config);
}

const char* interned_text(const std::string& text) {
  InternedTexts& interned = *base::made_once<&make_interned_texts>();
  const std::lock_guard lock(interned.mutex);
  return interned.texts.insert(text).first->c_str();
}

}  // namespace dbg::distributed
