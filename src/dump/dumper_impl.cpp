// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The way of one value: tags, filter, value, interceptor, gradients; the record itself is in dumper_record.cpp.
#include "dump/dumper_impl.h"

#include <array>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/formatted.h"
#include "base/log.h"
#include "base/no_cancellation.h"
#include "dbg/error.h"
#include "dump/foreign_call.h"
#include "dump/fork_generation.h"
#include "dump/part_name.h"
#include "dump/stream_capture.h"

namespace dbg::detail {
namespace {

// What the record itself says; a tag of that name would contradict it.
constexpr std::array<std::string_view, 11> kReservedKeys = {
    "step", "rank",      "dump_index", "world_rank", "world_size", "name", "recompute_status",
    "dims", "dims_grad", "local_name", "dbg_version"};

bool is_reserved(std::string_view key) {
  for (const std::string_view reserved : kReservedKeys) {
    if (key == reserved) return true;
  }
  return key.ends_with("_parallel_info") || key.starts_with("recompute_pseudo_");
}

std::string_view to_text(RecomputeStatus status) {
  switch (status) {
    case RecomputeStatus::disabled:
      break;
    case RecomputeStatus::original:
      return "original";
    case RecomputeStatus::recompute:
      return "recompute";
  }
  return "disabled";
}

std::string_view to_text(FaultPlace place) {
  switch (place) {
    case FaultPlace::dump:
      break;
    case FaultPlace::dict:
      return "iterating the dict of dump_dict";
    case FaultPlace::walk:
      return "walking the parameters of";
    case FaultPlace::parameter:
      return "dump_model at";
    case FaultPlace::record:
      return "writing the record of dump";
    case FaultPlace::gradient:
      return "the gradient of dump";
    case FaultPlace::interceptor:
      return "the interceptor of dump";
    case FaultPlace::step:
      return "step";
    case FaultPlace::context:
      return "the context";
  }
  return "dump";
}

Settings make_settings(DumperConfig config, const Settings* before) {
  config.validate();
  Settings settings;
  if (before != nullptr) settings = *before;
  settings.filter = config.filter ? Filter::parse(*config.filter) : Filter();
  settings.config = std::move(config);
  return settings;
}

// The keys of a call. Few are looked through; many, a program's mistake most likely, would take the square of their
// number.
class KnownKeys {
 public:
  TagView* find(CallPairs& call, std::string_view key) {
    constexpr std::size_t kMany = 32;
    if (call.pairs.size() < kMany) {
      for (auto& [known, value] : call.pairs) {
        if (known == key) return &value;
      }
      return nullptr;
    }
    for (std::size_t i = places_.size(); i < call.pairs.size(); ++i) places_.emplace(call.pairs[i].first, i);
    const auto place = places_.find(key);
    return place != places_.end() ? &call.pairs[place->second].second : nullptr;
  }

 private:
  std::unordered_map<std::string_view, std::size_t> places_;  // of as many pairs as it has: keys are unique
};

// Looks a filter's names up in a call: its own pairs first, then what dbg adds (step, rank, world_size, parallel
// ranks).
class CallLookup final : public TagLookup {
 public:
  CallLookup(const CallPairs& call, std::int64_t step, const PluginList& plugins, const PluginFaultHandler& on_fault)
      : call_(call), step_(step), plugins_(plugins), on_fault_(on_fault) {}

  TagView find(std::string_view key) const noexcept override {
    for (const auto& [name, value] : call_.pairs) {
      if (name == key) return value;
    }
    if (key == "step") return step_;
    if (key == "rank") return current_participant()->rank();
    if (key == "world_size") return current_participant()->world_size();
    if (!plugins_.empty()) return find_parallel(key);
    return {};
  }

 private:
  TagView find_parallel(std::string_view key) const noexcept {
    const bool is_rank = key.ends_with("_rank");
    if (!is_rank && !key.ends_with("_size")) return {};
    try {
      if (!parallel_) parallel_ = plugins_.collect_parallel_info(on_fault_).merged;
      if (const auto axis = parallel_->find(key.substr(0, key.size() - 5))) return is_rank ? axis->rank : axis->size;
    } catch (...) {
      // Strict mode throws from here; the record's own collection reports the same fault. No cancelled thread unwinds
      // here: passes_filter holds that off.
    }
    return {};
  }

  const CallPairs& call_;
  const std::int64_t step_;
  const PluginList& plugins_;
  const PluginFaultHandler& on_fault_;
  mutable std::optional<ParallelState> parallel_;
};

}  // namespace

DumperImpl::DumperImpl(DumperConfig config, std::atomic<unsigned char>* enabled, std::atomic<unsigned char>* mirror)
    : enabled_(enabled), mirror_(mirror), fork_generation_(fork_generation()) {
  auto settings = std::make_shared<Settings>(make_settings(std::move(config), nullptr));
  say_at_start(settings->config);
  const bool enable = settings->config.enable;
  settings_ = std::move(settings);
  publish_enabled(enable);
}

void DumperImpl::detach() noexcept {
  detached_.store(true, std::memory_order_release);
  publish_enabled(false);
}

void DumperImpl::publish_enabled(bool enabled) noexcept {
  const unsigned char word = enabled ? 1 : 0;
  enabled_->store(word, std::memory_order_relaxed);
  if (mirror_ != nullptr) mirror_->store(word, std::memory_order_relaxed);
}

std::shared_ptr<const Settings> DumperImpl::settings() const {
  const std::lock_guard lock(settings_mutex_);
  return settings_;
}

bool DumperImpl::refuse_in_forked_child() {
  if (fork_generation() == fork_generation_) return false;
  if (!detached_.exchange(true)) {
    publish_enabled(false);
    base::log_past_handler(LogLevel::warning, kPart,
                           "this process is a fork of the one that made the Dumper: dumping is off here. Make a "
                           "Dumper after the fork, or start workers by exec.");
  }
  return true;
}

void DumperImpl::count(DumpOutcome outcome, std::uint64_t number) noexcept {
  outcomes_[static_cast<std::size_t>(outcome)].fetch_add(number, std::memory_order_relaxed);
}

void DumperImpl::record_fault(const Settings& settings, FaultPlace place, std::string_view name) {
  const std::string cause = base::describe_current_exception();
  if (const std::uint64_t number = faults_[static_cast<std::size_t>(place)].hit()) {
    base::log(LogLevel::error, kPart, "{} '{}' failed: {} (fault {} of its kind; the run goes on without it)",
              to_text(place), name, cause, number);
  }
  if (settings.config.strict) throw;
}

void DumperImpl::drop(std::string_view name) {
  count(DumpOutcome::dropped);
  if (drops_.hit() != 1) return;
  base::log(LogLevel::warning, kPart,
            "dump '{}' is left out: this thread's CUDA stream is being captured into a graph, and a dump would "
            "break the capture. Dumps inside graphs need graphs off (in many engines: --enforce-eager, "
            "--disable-cuda-graph). Said once; `state()` counts them as dropped.",
            name);
}

void DumperImpl::skip(std::string_view what, std::string_view name, std::string_view reason) {
  count(DumpOutcome::skipped);
  if (const std::uint64_t number = skips_.hit()) {
    base::log(LogLevel::warning, kPart, "{} '{}' is not recorded: {} (skipped so far: {})", what, name, reason, number);
  }
}

PluginFaultHandler DumperImpl::plugin_faults(const Settings& settings) {
  return [this, strict = settings.config.strict](const std::string& plugin, std::string_view question,
                                                 const std::string& cause, bool first) {
    plugin_faults_.fetch_add(1, std::memory_order_relaxed);
    if (first) {
      base::log(LogLevel::warning, kPart, "plugin '{}': {} threw: {} (said once; records go without its answer)",
                plugin, question, cause);
    }
    if (strict) throw Error(formatted("plugin '{}': {} threw: {}", plugin, question, cause));
  };
}

CallPairs DumperImpl::make_call_pairs(std::string_view name, std::string_view recompute_status, TagSpan tags,
                                      std::shared_ptr<const Tags> context) {
  CallPairs call;
  call.context = std::move(context);
  call.pairs.emplace_back("name", name);
  call.pairs.emplace_back("recompute_status", recompute_status);
  KnownKeys known_keys;
  const auto add = [&](std::string_view key, TagView value, bool from_context) {
    if (is_reserved(key)) {
      call.renamed.push_back(std::make_unique<std::string>(formatted("user_{}", key)));
      if (!warned_reserved_.exchange(true, std::memory_order_relaxed)) {
        base::log(LogLevel::warning, kPart, "tag '{}' of dump '{}' is reserved; it is recorded as '{}' (said once)",
                  key, name, *call.renamed.back());
      }
      key = *call.renamed.back();
    }
    if (TagView* known_value = known_keys.find(call, key)) {
      if (!warned_duplicate_.exchange(true, std::memory_order_relaxed)) {
        base::log(LogLevel::warning, kPart, "tag '{}' of dump '{}' is given twice; {} (said once)", key, name,
                  from_context ? "the call's value wins over the context's" : "the later value wins");
      }
      if (!from_context) *known_value = value;
      return;
    }
    call.pairs.emplace_back(key, value);
  };
  for (const TagRef& tag : tags) add(tag.key, tag.value, false);
  if (call.context) {
    for (const auto& [key, value] : *call.context) add(key, value.view(), true);
  }
  return call;
}

bool DumperImpl::passes_filter(const Settings& settings, const CallPairs& call, std::int64_t step) {
  if (settings.filter.matches_everything()) return true;
  const base::NoCancellation until_matched;  // the lookup can't unwind, and asks plugins
  const PluginFaultHandler on_fault = plugin_faults(settings);
  return settings.filter.matches(CallLookup(call, step, *settings.plugins, on_fault));
}

void DumperImpl::dump(std::string_view name, const LazyValue& value, TagList tags, const DumpOptions& options) {
  if (refuse_in_forked_child()) return;
  const auto now = settings();
  if (!now->config.enable) return;
  DumpRequest request;
  request.name = name;
  request.save = options.save;
  request.want_value = now->config.enable_value;
  request.want_future_grad = now->config.enable_grad;
  request.dims = options.dims;
  request.dims_grad = options.dims_grad;
  request.extras = options.grafter_extras;
  try {
    dump_value(*now, request, value, TagSpan(tags.begin(), tags.size()));
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    count(DumpOutcome::failed);
    record_fault(*now, FaultPlace::dump, name);
  }
}

template <class Visit>
void DumperImpl::walk_dict(std::string_view prefix, TagList tags, const DumpOptions& options, Visit&& visit) {
  if (refuse_in_forked_child()) return;
  bool is_dumping = false;
  try {
    std::string name(prefix);
    name.push_back('_');
    const std::size_t prefix_size = name.size();
    visit([&](std::string_view key, const LazyValue& value) {
      name.resize(prefix_size);
      name.append(key);
      is_dumping = true;
      dump(name, value, tags, options);
      is_dumping = false;
    });
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    if (is_dumping) throw;  // strict, and counted already
    count(DumpOutcome::failed);
    record_fault(*settings(), FaultPlace::dict, prefix);
  }
}

void DumperImpl::dump_dict(std::string_view prefix, const DictView& dict, TagList tags, const DumpOptions& options) {
  walk_dict(prefix, tags, options, [&dict](auto dump_one) {
    dict.visit([](void* context, std::string_view key,
                  const LazyValue& value) { (*static_cast<decltype(dump_one)*>(context))(key, value); },
               &dump_one);
  });
}

void DumperImpl::dump_dict(std::string_view prefix, const c10::IValue& dict, TagList tags, const DumpOptions& options) {
  walk_dict(prefix, tags, options, [&](auto dump_one) {
    if (!dict.isGenericDict()) {
      skip("dump_dict", prefix, formatted("expected a dict, got {}; use dump() for other values", dict.tagKind()));
      return;
    }
    for (const auto& entry : dict.toGenericDict()) {
      if (entry.key().isString()) {
        dump_one(entry.key().toStringRef(), LazyValue::of(entry.value()));
      } else {
        skip("an entry of dump_dict", prefix, formatted("its key is {}, not text", entry.key().tagKind()));
      }
    }
  });
}

void DumperImpl::dump_value(const Settings& settings, const DumpRequest& request, const LazyValue& value,
                            TagSpan tags) {
  const auto state = participant_state();
  warn_of_nested_dump(settings, request.name);
  const RecomputeStatus recompute = settings.plugins->empty()
                                        ? RecomputeStatus::disabled
                                        : settings.plugins->recompute_status(plugin_faults(settings));
  const CallPairs call = make_call_pairs(request.name, to_text(recompute), tags, state->context());
  const std::int64_t step = state->step();
  if (!passes_filter(settings, call, step)) {
    count(DumpOutcome::filtered);
    if (request.report != nullptr) ++request.report->filtered;
    return;
  }
  if (!request.want_value && !request.want_current_grad && !request.want_future_grad) {
    count(DumpOutcome::skipped);
    return;
  }
  if (is_stream_capturing()) {
    drop(request.name);
    if (request.report != nullptr) request.report->failed += request.want_value ? 1 : 0;
    if (request.report != nullptr) request.report->grads_failed += request.want_current_grad ? 1 : 0;
    // Without the value, which is not even made: others may wait for an interceptor that does not come.
    intercept(settings, call, request, c10::IValue(), step);
    return;
  }
  const c10::IValue made = value.make();
  intercept(settings, call, request, made, step);

  bool is_counted = request.want_value;
  if (request.want_value) {
    const DumpOutcome outcome =
        write_record_of(settings, *state, call, request, request.kind, request.name, made, step);
    if (request.report != nullptr && outcome == DumpOutcome::written) ++request.report->written;
    if (request.report != nullptr && outcome == DumpOutcome::failed) ++request.report->failed;
  }
  const bool is_tensor = made.isTensor() && made.toTensor().defined();
  const bool is_parameter = request.kind == RecordKind::parameter;
  if (request.want_current_grad) {
    const at::Tensor grad = is_tensor ? made.toTensor().grad() : at::Tensor();
    if (grad.defined()) {
      is_counted = true;
      const std::string grad_name = formatted("grad__{}", request.name);
      const DumpOutcome grad_outcome =
          write_record_of(settings, *state, call, request, is_parameter ? RecordKind::parameter_grad : RecordKind::grad,
                          grad_name, c10::IValue(grad), step);
      if (request.report != nullptr && grad_outcome == DumpOutcome::written) ++request.report->grads_written;
      if (request.report != nullptr && grad_outcome == DumpOutcome::failed) ++request.report->grads_failed;
    } else if (request.report != nullptr) {
      ++request.report->without_grad;
    }
  }
  if (request.want_future_grad && is_tensor && made.toTensor().requires_grad()) {
    is_counted = true;
    GradCapture capture;
    capture.participant = current_participant();
    capture.name = std::string(request.name);
    capture.recompute_status = std::string(to_text(recompute));
    for (std::size_t i = 2; i < call.pairs.size(); ++i) capture.tags.set(call.pairs[i].first, call.pairs[i].second);
    capture.step = step;
    capture.save = request.save;
    capture.dims = std::string(request.dims_grad.empty() ? request.dims : request.dims_grad);
    grad_hooks_.watch(
        made.toTensor(), std::move(capture),
        [weak = weak_from_this()](const GradCapture& captured) {
          const auto self = weak.lock();
          return self ? self->step_of(captured) : captured.step;
        },
        [weak = weak_from_this()](const GradCapture& captured, const at::Tensor& grad) {
          if (const auto self = weak.lock()) self->write_future_grad(captured, grad);
        });
  }
  if (!is_counted) count(DumpOutcome::skipped);
}

void DumperImpl::warn_of_nested_dump(const Settings& settings, std::string_view name) {
  const bool in_interceptor = ForeignCall<Foreign::interceptor>::is_inside() && settings.interceptor;
  const bool in_plugin = ForeignCall<Foreign::plugin>::is_inside() && !settings.plugins->empty();
  if ((!in_interceptor && !in_plugin) || warned_nested_.exchange(true, std::memory_order_relaxed)) return;
  base::log(LogLevel::warning, kPart,
            "dump '{}' is called from inside {}: it is recorded without asking {} again (said once)", name,
            in_plugin ? "a plugin" : "the interceptor", in_plugin ? "plugins" : "it");
}

void DumperImpl::intercept(const Settings& settings, const CallPairs& call, const DumpRequest& request,
                           const c10::IValue& value, std::int64_t step) {
  using Inside = ForeignCall<Foreign::interceptor>;
  if (!settings.interceptor || Inside::is_inside()) return;
  const Inside interceptor;
  interceptions_.fetch_add(1, std::memory_order_relaxed);
  try {
    Tags tags;
    for (const auto& [key, tag] : call.pairs) tags.set(key, tag);
    const auto parallel_state = [this, &settings] {
      return settings.plugins->collect_parallel_info(plugin_faults(settings)).merged;
    };
    (*settings.interceptor)(Interception{tags, value, request.extras, step, request.dims, parallel_state});
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    interceptor_faults_.fetch_add(1, std::memory_order_relaxed);
    record_fault(settings, FaultPlace::interceptor, request.name);
  }
}

std::int64_t DumperImpl::step_of(const GradCapture& capture) noexcept {
  if (detached_.load(std::memory_order_acquire) || refuse_in_forked_child()) return capture.step;
  try {
    return participants_.of(capture.participant)->step();
  } catch (const std::bad_alloc&) {
    return capture.step;  // as if it had come at once; there is no memory for its record either
  }
}

void DumperImpl::write_future_grad(const GradCapture& capture, const at::Tensor& grad) {
  if (detached_.load(std::memory_order_acquire) || refuse_in_forked_child()) return;
  const auto now = settings();
  if (!now->config.enable || !now->config.enable_grad || !grad.defined()) return;
  try {
    // Autograd's threads serve everybody: this one speaks for the participant that dumped.
    const ParticipantScope scope(capture.participant);
    const auto state = participant_state();
    CallPairs call;
    call.pairs.emplace_back("name", std::string_view(capture.name));
    call.pairs.emplace_back("recompute_status", std::string_view(capture.recompute_status));
    for (const auto& [key, value] : capture.tags) call.pairs.emplace_back(key, value.view());
    // The filter speaks of the value's name, as it did when the value was dumped.
    if (!passes_filter(*now, call, capture.step)) {
      count(DumpOutcome::filtered);
      return;
    }
    const std::string name = formatted("grad__{}", capture.name);
    if (is_stream_capturing()) {
      drop(name);
      return;
    }
    DumpRequest request;
    request.name = capture.name;
    request.save = capture.save;
    request.dims = capture.dims;
    write_record_of(*now, *state, call, request, RecordKind::grad, name, c10::IValue(grad), capture.step);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    count(DumpOutcome::failed);
    record_fault(*now, FaultPlace::gradient, capture.name);
  }
}

}  // namespace dbg::detail
