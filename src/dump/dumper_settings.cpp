// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Changing a Dumper while it runs, and asking it how it is.
#include <cxxabi.h>
#include <fmt/ranges.h>

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/one_image.h"
#include "dbg/error.h"
#include "dump/dumper_impl.h"
#include "dump/fork_generation.h"
#include "dump/part_name.h"

namespace dbg::detail {
namespace {

// Said once: two copies number their records, count and read the environment each for itself.
void warn_of_other_copies() {
  static std::atomic<bool> has_looked{false};
  // In a forked child a thread of the parent's may hold the loader's lock.
  if (fork_generation() != 0 || has_looked.exchange(true)) return;
  const std::vector<std::string> images = base::images_with_dbg();
  if (images.size() < 2) return;
  base::log(
      LogLevel::warning, kPart,
      "dbg is in this process {} times, in {}: each copy has a Dumper of its own, and records, steps and counters of "
      "one are unknown to the other. Link it into one shared object that the others use.",
      images.size(), fmt::join(images, ", "));
}

}  // namespace

void say_at_start(const DumperConfig& config) {
  if (!config.enable) return;
  for (const std::string& part : config.unavailable_parts()) base::log(LogLevel::warning, kPart, "{}", part);
  warn_of_other_copies();
}

std::shared_ptr<ParticipantState> DumperImpl::participant_state() {
  // A forked child's is its own: a thread of the parent may have held the lock of the one that is there.
  if (refuse_in_forked_child()) return std::make_shared<ParticipantState>(0, 0);
  return participants_.of(current_participant());
}

void DumperImpl::set_context(TagList tags) {
  if (refuse_in_forked_child()) return;
  try {
    participant_state()->set_context(tags);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    context_fault();
  }
}

void DumperImpl::context_fault() {
  record_fault(*settings(), FaultPlace::context, "");
}

void DumperImpl::step() {
  if (refuse_in_forked_child()) return;
  const auto now = settings();
  if (!now->config.enable) return;
  try {
    const std::int64_t step = participant_state()->next_step();
    if (now->config.enable_output_console) base::log(LogLevel::info, kPart, "step={}", step);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    record_fault(*now, FaultPlace::step, "");
  }
}

DumperConfig DumperImpl::config() {
  if (refuse_in_forked_child()) return DumperConfig();
  return settings()->config;
}

// While it lives, no other thread changes the configuration or the listener. Not a mutex that is held: the listener is
// foreign code, and one that configures is told so instead of waiting for itself.
class DumperImpl::ConfigureTurn {
 public:
  explicit ConfigureTurn(DumperImpl& dumper) : dumper_(dumper) {
    std::unique_lock lock(dumper.turn_mutex_);
    if (dumper.has_turn_ == std::this_thread::get_id()) {
      throw LogicError(
          "configure or set_config_listener was called by the Dumper's config listener, which is asked before a "
          "configuration is taken: throw there to refuse it, and configure once the listener has returned");
    }
    dumper.turn_ended_.wait(lock, [&] { return dumper.has_turn_ == std::thread::id(); });
    dumper.has_turn_ = std::this_thread::get_id();
  }
  ~ConfigureTurn() {
    {
      const std::lock_guard lock(dumper_.turn_mutex_);
      dumper_.has_turn_ = std::thread::id();
    }
    dumper_.turn_ended_.notify_one();
  }
  ConfigureTurn(const ConfigureTurn&) = delete;
  ConfigureTurn& operator=(const ConfigureTurn&) = delete;

 private:
  DumperImpl& dumper_;
};

void DumperImpl::configure(DumperConfig config) {
  config.validate();
  if (refuse_in_forked_child()) return;
  {
    const ConfigureTurn turn(*this);
    take(config);
  }
  say_at_start(config);
}

void DumperImpl::configure(const std::vector<std::string>& key_values) {
  if (refuse_in_forked_child()) {
    DumperConfig().with_overrides(key_values).validate();
    return;
  }
  for (;;) {
    // Before the turn, for it may cost a line in the log, whose handler is foreign code and may wait for a thread that
    // configures, too.
    const std::shared_ptr<const Settings> before = settings();  // held, so that no other comes to lie at its address
    const DumperConfig config = before->config.with_overrides(key_values);
    config.validate();
    {
      const ConfigureTurn turn(*this);
      if (settings() != before) continue;
      take(config);
    }
    say_at_start(config);
    return;
  }
}

void DumperImpl::take(const DumperConfig& config) {
  // Everything that can fail happens before anything changes, the listener last: what it does is not undone.
  auto fresh = std::make_shared<Settings>();
  fresh->filter = config.filter ? Filter::parse(*config.filter) : Filter();
  fresh->config = config;
  if (listener_) listener_(config);
  const std::lock_guard lock(settings_mutex_);
  fresh->plugins = settings_->plugins;
  fresh->interceptor = settings_->interceptor;
  settings_ = std::move(fresh);
  if (!detached_.load(std::memory_order_acquire)) publish_enabled(config.enable);
}

void DumperImpl::set_config_listener(ConfigListener listener) {
  if (refuse_in_forked_child()) return;
  ConfigListener before;  // its end is foreign code: outlives the turn
  const ConfigureTurn turn(*this);
  before = std::exchange(listener_, std::move(listener));
  if (listener_) listener_(settings()->config);
}

std::uint64_t DumperImpl::add_plugin(std::shared_ptr<FrameworkPlugin> plugin) {
  if (!plugin) throw ConfigError("add_plugin: the plugin is null; pass one made by std::make_shared");
  if (refuse_in_forked_child()) return 0;
  const std::lock_guard lock(settings_mutex_);
  auto fresh = std::make_shared<Settings>(*settings_);
  fresh->plugins = fresh->plugins->with(last_plugin_id_ + 1, std::move(plugin));
  settings_ = std::move(fresh);
  return ++last_plugin_id_;
}

void DumperImpl::remove_plugin(std::uint64_t id) {
  if (refuse_in_forked_child()) return;
  std::shared_ptr<const Settings> before;  // a plugin's destructor is foreign code: not under the lock
  const std::lock_guard lock(settings_mutex_);
  auto fresh = std::make_shared<Settings>(*settings_);
  fresh->plugins = fresh->plugins->without(id);
  before = std::exchange(settings_, std::move(fresh));
}

void DumperImpl::set_interceptor(ValueInterceptor interceptor) {
  if (refuse_in_forked_child()) return;
  std::shared_ptr<const Settings> before;
  auto held = interceptor ? std::make_shared<const ValueInterceptor>(std::move(interceptor)) : nullptr;
  const std::lock_guard lock(settings_mutex_);
  auto fresh = std::make_shared<Settings>(*settings_);
  fresh->interceptor = std::move(held);
  before = std::exchange(settings_, std::move(fresh));
}

std::optional<std::int64_t> DumperImpl::layer_id_of(std::string_view module_path) {
  if (refuse_in_forked_child()) return layer_id_in_path(module_path);
  const auto now = settings();
  return now->plugins->layer_id_of(module_path, plugin_faults(*now));
}

void DumperImpl::reset() {
  participant_state()->reset();
}

DumperState DumperImpl::state() {
  DumperState result;
  result.config = config();
  const auto participant = participant_state();
  result.step = participant->step();
  result.dump_index = participant->dump_index();
  if (!refuse_in_forked_child()) {
    const std::lock_guard lock(sink_mutex_);
    result.exp_name = result.config.exp_name.value_or(exp_name_);
  }
  const auto outcome = [this](DumpOutcome which) {
    return outcomes_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
  };
  result.counters.written = outcome(DumpOutcome::written);
  result.counters.filtered = outcome(DumpOutcome::filtered);
  result.counters.skipped = outcome(DumpOutcome::skipped);
  result.counters.dropped = outcome(DumpOutcome::dropped);
  result.counters.failed = outcome(DumpOutcome::failed);
  result.counters.interceptions = interceptions_.load(std::memory_order_relaxed);
  result.counters.interceptor_faults = interceptor_faults_.load(std::memory_order_relaxed);
  result.counters.plugin_faults = plugin_faults_.load(std::memory_order_relaxed);
  result.counters.bytes_written = bytes_written_.load(std::memory_order_relaxed);
  return result;
}

}  // namespace dbg::detail
