// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The way of one value: tags, filter, value, interceptor, record, gradients.
#include "dump/dumper_impl.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "codec/pickle_writer.h"
#include "dbg/error.h"
#include "dbg/version.h"
#include "dump/console_line.h"
#include "dump/fork_generation.h"
#include "dump/stream_capture.h"

namespace dbg::detail {
namespace {

constexpr std::string_view kPart = "Dumper";

// What the record itself says; a tag of that name would contradict it.
constexpr std::array<std::string_view, 10> kReservedKeys = {
    "step", "rank",      "dump_index", "world_rank", "world_size", "name", "recompute_status",
    "dims", "dims_grad", "dbg_version"};

// The axes that go into file names, in the order of the Python twin.
constexpr std::array<std::string_view, 5> kFileNameAxes = {"pp", "tp", "cp", "ep", "etp"};

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

std::string_view to_text(RecordKind kind) {
  switch (kind) {
    case RecordKind::value:
      break;
    case RecordKind::grad:
      return "Grad";
    case RecordKind::parameter:
      return "ParamValue";
    case RecordKind::parameter_grad:
      return "ParamGrad";
  }
  return "Value";
}

Settings make_settings(DumperConfig config, const Settings* before) {
  config.validate();
  Settings settings;
  if (before != nullptr) settings = *before;
  settings.filter = config.filter ? Filter::parse(*config.filter) : Filter();
  settings.config = std::move(config);
  return settings;
}

void say_what_is_missing(const DumperConfig& config) {
  if (!config.enable) return;
  for (const std::string& part : config.unavailable_parts()) base::log(LogLevel::warning, kPart, "{}", part);
}

// Looks a filter's names up in a call: its own pairs first, then what dbg adds (step, rank, world_size, parallel
// ranks).
class CallLookup final : public TagLookup {
 public:
  CallLookup(const CallPairs& call, const ParticipantState& state, const PluginList& plugins,
             const PluginFaultHandler& on_fault)
      : call_(call), state_(state), plugins_(plugins), on_fault_(on_fault) {}

  TagView find(std::string_view key) const noexcept override {
    for (const auto& [name, value] : call_.pairs) {
      if (name == key) return value;
    }
    if (key == "step") return state_.step();
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
      // Strict mode throws from here; the record's own collection reports the same fault.
    }
    return {};
  }

  const CallPairs& call_;
  const ParticipantState& state_;
  const PluginList& plugins_;
  const PluginFaultHandler& on_fault_;
  mutable std::optional<ParallelState> parallel_;
};

}  // namespace

DumperImpl::DumperImpl(DumperConfig config, std::atomic<unsigned char>* enabled, std::atomic<unsigned char>* mirror)
    : enabled_(enabled), mirror_(mirror), fork_generation_(fork_generation()) {
  auto settings = std::make_shared<Settings>(make_settings(std::move(config), nullptr));
  say_what_is_missing(settings->config);
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

void DumperImpl::record_fault(const Settings& settings, std::string_view what, std::string_view name) {
  const std::string cause = base::describe_current_exception();
  if (const std::uint64_t number = faults_.hit()) {
    base::log(LogLevel::error, kPart, "{} '{}' failed: {} (fault {}; the run goes on without it)", what, name, cause,
              number);
  }
  if (settings.config.strict) throw;
}

PluginFaultHandler DumperImpl::plugin_faults(const Settings& settings) {
  return [this, strict = settings.config.strict](const std::string& plugin, std::string_view question,
                                                 const std::string& cause, bool first) {
    plugin_faults_.fetch_add(1, std::memory_order_relaxed);
    if (first) {
      base::log(LogLevel::warning, kPart, "plugin '{}': {} threw: {} (said once; records go without its answer)",
                plugin, question, cause);
    }
    if (strict) throw Error(fmt::format("plugin '{}': {} threw: {}", plugin, question, cause));
  };
}

CallPairs DumperImpl::make_call_pairs(std::string_view name, std::string_view recompute_status, TagSpan tags,
                                      std::shared_ptr<const Tags> context) {
  CallPairs call;
  call.context = std::move(context);
  call.pairs.emplace_back("name", name);
  call.pairs.emplace_back("recompute_status", recompute_status);
  const auto add = [&](std::string_view key, TagView value, bool from_context) {
    if (is_reserved(key)) {
      call.renamed.push_back(std::make_unique<std::string>(fmt::format("user_{}", key)));
      if (!warned_reserved_.exchange(true, std::memory_order_relaxed)) {
        base::log(LogLevel::warning, kPart, "tag '{}' of dump '{}' is reserved; it is recorded as '{}' (said once)",
                  key, name, *call.renamed.back());
      }
      key = *call.renamed.back();
    }
    for (auto& [known, known_value] : call.pairs) {
      if (known != key) continue;
      if (!warned_duplicate_.exchange(true, std::memory_order_relaxed)) {
        base::log(LogLevel::warning, kPart, "tag '{}' of dump '{}' is given twice; {} (said once)", key, name,
                  from_context ? "the call's value wins over the context's" : "the later value wins");
      }
      if (!from_context) known_value = value;
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

bool DumperImpl::passes_filter(const Settings& settings, const CallPairs& call, const ParticipantState& state) {
  if (settings.filter.matches_everything()) return true;
  const PluginFaultHandler on_fault = plugin_faults(settings);
  return settings.filter.matches(CallLookup(call, state, *settings.plugins, on_fault));
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
    record_fault(*now, "dump", name);
  }
}

DumpOutcome DumperImpl::dump_value(const Settings& settings, const DumpRequest& request, const LazyValue& value,
                                   TagSpan tags) {
  const auto state = participant_state();
  const RecomputeStatus recompute = settings.plugins->empty()
                                        ? RecomputeStatus::disabled
                                        : settings.plugins->recompute_status(plugin_faults(settings));
  const CallPairs call = make_call_pairs(request.name, to_text(recompute), tags, state->context());
  if (!passes_filter(settings, call, *state)) {
    count(DumpOutcome::filtered);
    return DumpOutcome::filtered;
  }
  if (!request.want_value && !request.want_current_grad && !request.want_future_grad) {
    count(DumpOutcome::skipped);
    return DumpOutcome::skipped;
  }
  if (is_stream_capturing()) {
    count(DumpOutcome::dropped);
    if (const std::uint64_t number = drops_.hit(); number == 1) {
      base::log(LogLevel::warning, kPart,
                "dump '{}' is left out: this thread's CUDA stream is being captured into a graph, and a dump would "
                "break the capture. Dumps inside graphs need graphs off (in many engines: --enforce-eager, "
                "--disable-cuda-graph). Said once; `state()` counts them as dropped.",
                request.name);
    }
    return DumpOutcome::dropped;
  }
  const std::int64_t step = state->step();
  const c10::IValue made = value.make();
  intercept(settings, call, request, made, step);

  DumpOutcome outcome = DumpOutcome::skipped;
  if (request.want_value) {
    outcome = write_record_of(settings, *state, call, request, request.kind, request.name, made, step);
  }
  const bool is_tensor = made.isTensor() && made.toTensor().defined();
  const bool is_parameter = request.kind == RecordKind::parameter;
  if (request.want_current_grad && is_tensor) {
    const at::Tensor grad = made.toTensor().grad();
    if (grad.defined()) {
      const std::string grad_name = fmt::format("grad__{}", request.name);
      const DumpOutcome grad_outcome =
          write_record_of(settings, *state, call, request, is_parameter ? RecordKind::parameter_grad : RecordKind::grad,
                          grad_name, c10::IValue(grad), step);
      if (request.report != nullptr && grad_outcome == DumpOutcome::written) ++request.report->grads_written;
    } else if (request.report != nullptr) {
      ++request.report->without_grad;
    }
  }
  if (request.want_future_grad && is_tensor && made.toTensor().requires_grad()) {
    GradCapture capture;
    capture.participant = current_participant();
    capture.name = std::string(request.name);
    capture.recompute_status = std::string(to_text(recompute));
    for (std::size_t i = 2; i < call.pairs.size(); ++i) capture.tags.set(call.pairs[i].first, call.pairs[i].second);
    capture.step = step;
    capture.save = request.save;
    capture.dims = std::string(request.dims_grad.empty() ? request.dims : request.dims_grad);
    grad_hooks_.watch(made.toTensor(), std::move(capture),
                      [weak = weak_from_this()](const GradCapture& captured, const at::Tensor& grad) {
                        if (const auto self = weak.lock()) self->write_future_grad(captured, grad);
                      });
  }
  return outcome;
}

void DumperImpl::intercept(const Settings& settings, const CallPairs& call, const DumpRequest& request,
                           const c10::IValue& value, std::int64_t step) {
  if (!settings.interceptor) return;
  interceptions_.fetch_add(1, std::memory_order_relaxed);
  try {
    Tags tags;
    for (const auto& [key, tag] : call.pairs) tags.set(key, tag);
    (*settings.interceptor)(Interception{tags, value, request.extras, step});
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    record_fault(settings, "the interceptor of dump", request.name);
  }
}

void DumperImpl::write_future_grad(const GradCapture& capture, const at::Tensor& grad) {
  if (detached_.load(std::memory_order_acquire) || refuse_in_forked_child()) return;
  const auto now = settings();
  if (!now->config.enable || !now->config.enable_grad || !grad.defined()) return;
  // Autograd's threads serve everybody: this one speaks for the participant that dumped.
  const ParticipantScope scope(capture.participant);
  const auto state = participant_state();
  try {
    CallPairs call;
    call.pairs.emplace_back("name", std::string_view(capture.name));
    call.pairs.emplace_back("recompute_status", std::string_view(capture.recompute_status));
    for (const auto& [key, value] : capture.tags) call.pairs.emplace_back(key, value.view());
    // The filter speaks of the value's name, as it did when the value was dumped.
    if (!passes_filter(*now, call, *state)) {
      count(DumpOutcome::filtered);
      return;
    }
    if (is_stream_capturing()) {
      count(DumpOutcome::dropped);
      return;
    }
    DumpRequest request;
    request.name = capture.name;
    request.save = capture.save;
    request.dims = capture.dims;
    const std::string name = fmt::format("grad__{}", capture.name);
    write_record_of(*now, *state, call, request, RecordKind::grad, name, c10::IValue(grad), capture.step);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    count(DumpOutcome::failed);
    record_fault(*now, "the gradient of dump", capture.name);
  }
}

DumpOutcome DumperImpl::write_record_of(const Settings& settings, ParticipantState& state, const CallPairs& call,
                                        const DumpRequest& request, RecordKind kind, std::string_view name,
                                        const c10::IValue& value, std::int64_t step) {
  try {
    const std::shared_ptr<RecordSink> capture = state.capture_sink();
    const bool to_file = settings.config.enable_output_file && request.save && capture == nullptr;
    const bool to_console = settings.config.enable_output_console;
    if (!to_file && !to_console && !(capture && request.save)) {
      count(DumpOutcome::skipped);
      return DumpOutcome::skipped;
    }
    if (const std::optional<std::string> reason = codec::refusal_of(value)) {
      count(DumpOutcome::skipped);
      if (const std::uint64_t number = skips_.hit()) {
        base::log(LogLevel::warning, kPart, "dump '{}' is not recorded: {} (skipped so far: {})", name, *reason,
                  number);
      }
      return DumpOutcome::skipped;
    }

    const auto participant = current_participant();
    const bool is_future_grad = kind == RecordKind::grad;
    RecordDraft draft;
    draft.value = value;
    draft.pairs.reserve(call.pairs.size() + 8);
    draft.pairs.emplace_back("step", step);
    draft.pairs.emplace_back("rank", participant->rank());
    draft.pairs.emplace_back("dump_index", state.next_dump_index());
    draft.pairs.emplace_back("name", name);
    // As in the Python twin, whose comparator pairs by equal tag sets: a later gradient has no recompute_status.
    for (std::size_t i = is_future_grad ? 2 : 1; i < call.pairs.size(); ++i) draft.pairs.push_back(call.pairs[i]);

    const ParallelInfo parallel = settings.plugins->collect_parallel_info(plugin_faults(settings));
    std::array<std::string, kFileNameAxes.size()> axis_keys;  // outlives the draft's borrowed keys
    if (settings.config.include_parallel_rank_in_filename) {
      for (std::size_t i = 0; i < kFileNameAxes.size(); ++i) {
        const auto axis = parallel.merged.find(kFileNameAxes[i]);
        if (!axis) continue;
        axis_keys[i] = fmt::format("{}_rank", kFileNameAxes[i]);
        bool taken = false;
        for (const auto& pair : draft.pairs) taken = taken || pair.first == axis_keys[i];
        if (!taken) {
          draft.pairs.emplace_back(axis_keys[i], axis->rank);
        } else if (!warned_parallel_.exchange(true, std::memory_order_relaxed)) {
          base::log(LogLevel::warning, kPart,
                    "tag '{}' of dump '{}' is also a plugin's parallel rank; the call's value wins (said once)",
                    axis_keys[i], name);
        }
      }
    }
    draft.extra_meta.emplace_back("world_rank", participant->rank());
    draft.extra_meta.emplace_back("world_size", participant->world_size());
    for (const auto& [meta_name, axes] : parallel.by_meta_name) {
      c10::impl::GenericDict info(c10::StringType::get(), c10::AnyType::get());
      for (const ParallelAxis& axis : axes.axes()) {
        info.insert(axis.name + "_rank", static_cast<std::int64_t>(axis.rank));
        info.insert(axis.name + "_size", static_cast<std::int64_t>(axis.size));
      }
      draft.extra_meta.emplace_back(meta_name + "_parallel_info", c10::IValue(std::move(info)));
    }
    const bool is_grad = kind == RecordKind::grad || kind == RecordKind::parameter_grad;
    const std::string_view dims = is_grad && !request.dims_grad.empty() ? request.dims_grad : request.dims;
    if (!dims.empty()) draft.extra_meta.emplace_back("dims", std::string(dims));
    if (!is_grad && !request.dims_grad.empty()) {
      draft.extra_meta.emplace_back("dims_grad", std::string(request.dims_grad));
    }
    if (!is_future_grad) {
      const std::string_view status = call.pairs[1].second.text();
      if (status != "disabled") {
        draft.extra_meta.emplace_back("recompute_pseudo_rank", std::int64_t{status == "recompute" ? 1 : 0});
        draft.extra_meta.emplace_back("recompute_pseudo_size", std::int64_t{2});
      }
    }
    if (!request.local_name.empty()) draft.extra_meta.emplace_back("local_name", std::string(request.local_name));
    draft.extra_meta.emplace_back("dbg_version", std::string(version()));

    std::shared_ptr<RecordSink> sink = capture;
    if (to_file) sink = file_sink(settings, state);
    const bool to_sink = sink != nullptr && request.save;
    SinkOutcome result;
    if (to_sink) {
      while ((result = sink->write(draft)).taken) {
        draft.pairs[RecordDraft::kDumpIndexAt].second = state.next_dump_index();
      }
      bytes_written_.fetch_add(result.bytes, std::memory_order_relaxed);
    }
    if (to_console) {
      std::string path = draft.file_name();
      if (to_file) {
        const std::lock_guard lock(sink_mutex_);
        path = fmt::format("{}/{}", sink_folder_, path);
      }
      base::log_text(LogLevel::info, kPart, console_line(to_text(kind), path, value));
    }
    count(to_sink ? DumpOutcome::written : DumpOutcome::skipped);
    return to_sink ? DumpOutcome::written : DumpOutcome::skipped;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    // Here and not further out: the gradient of a value that could not be written may still be.
    if (!settings.config.strict) {
      count(DumpOutcome::failed);
      record_fault(settings, "writing the record of dump", name);
      return DumpOutcome::failed;
    }
    throw;
  }
}

}  // namespace dbg::detail
