// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The Dumper: records named tensors of a running model, one whole file a tensor, rank and step.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dbg/config.h"
#include "dbg/dump_record.h"
#include "dbg/export.h"
#include "dbg/model_walk.h"
#include "dbg/parallel_state.h"
#include "dbg/plugin.h"
#include "dbg/tags.h"

namespace dbg {

class World;

/// What one `dump()` may say beyond its tags. Everything is borrowed for the call.
struct DumpOptions {
  bool save = true;                             ///< false: filter, interceptor and console only, no record
  std::string_view dims;                        ///< the tensor's axes, `b s[cp] h[tp]` (dbg/dims.h); goes into the meta
  std::string_view dims_grad;                   ///< the gradient's axes where they differ
  const c10::IValue* grafter_extras = nullptr;  ///< handed to the interceptor
};

/// What one `dump_model()` may say.
struct DumpModelOptions {
  std::string name_prefix = "param";  ///< records are named `<prefix>__<parameter>` and `grad__<prefix>__...`
  bool save = true;
  Tags tags;
  int model_chunk = 0;                     ///< handed to the plugins (virtual pipeline)
  std::vector<ExtraModule> extra_modules;  ///< modules that the model does not register
};

/// What `dump_model()` met. With values on, `seen == written + filtered + failed`; with gradients on,
/// `seen == grads_written + without_grad + filtered + grads_failed` (save=false and outputs that are off aside). While
/// one of the two is off, its counts are 0.
struct DumpModelReport {
  std::int64_t seen = 0;              ///< parameters, each counted once
  std::int64_t written = 0;           ///< value records
  std::int64_t grads_written = 0;     ///< gradient records
  std::int64_t filtered = 0;          ///< parameters that the filter rejected
  std::int64_t failed = 0;            ///< values not written: a fault, a kind that is skipped, a captured stream
  std::int64_t grads_failed = 0;      ///< gradients not written for one of these reasons
  std::int64_t without_grad = 0;      ///< parameters that have no gradient (counted while enable_model_grad is on)
  std::vector<std::string> children;  ///< distinct first path segments, in the model's order
};

/// Why dumps did or did not become records; every call and record of a Dumper is in exactly one of the first five. (A
/// gradient that is to come later is counted when it comes.)
struct DumperCounters {
  std::uint64_t written = 0;   ///< records, in files or in a capture
  std::uint64_t filtered = 0;  ///< rejected by the filter
  std::uint64_t skipped = 0;   ///< nothing to write: undefined or meta tensor, save=false, outputs off, no gradient
  std::uint64_t dropped = 0;   ///< not touched because a CUDA stream was capturing
  std::uint64_t failed = 0;    ///< a record lost to a fault; the log names the cause
  std::uint64_t interceptions = 0;       ///< values handed to the interceptor
  std::uint64_t interceptor_faults = 0;  ///< interceptor calls that threw; the records were written all the same
  std::uint64_t plugin_faults = 0;       ///< plugin calls that threw; their part was left out
  std::uint64_t bytes_written = 0;       ///< size of all record files
};

/// A Dumper's state, for the calling participant where it is kept per participant.
struct DumperState {
  DumperConfig config;
  std::string exp_name;  ///< empty until the first record decides it
  std::int64_t step = 0;
  std::int64_t dump_index = 0;
  DumperCounters counters;
};

/// What an interceptor sees: a value after the filter, before it is written. It may write into the tensor.
struct Interception {
  const Tags& tags;  ///< name, recompute_status, the call's tags, the context
  const c10::IValue& value;  ///< None, whatever was dumped, while the thread's CUDA stream is captured into a graph
  const c10::IValue* extras;  ///< DumpOptions::grafter_extras, or nullptr
  std::int64_t step;
  std::string_view dims = {};  ///< DumpOptions::dims
  /// The rank's place by axis, as the plugins say it; asked for when called. May be empty.
  std::function<ParallelState()> parallel_state = {};
};

/// Called on the dumping thread, inside the fence: what it throws is logged and counted, and the record is written.
using ValueInterceptor = std::function<void(const Interception&)>;

/// Asked about each configuration that a Dumper is to take; throws to refuse it. It may set the interceptor, but not
/// configure, which throws LogicError there.
using ConfigListener = std::function<void(const DumperConfig&)>;

/// Ends a registration. Removing twice is harmless; keeps nothing alive.
class DBG_API PluginHandle {
 public:
  PluginHandle() = default;
  void remove() noexcept;

 private:
  friend class Dumper;
  std::function<void()> remove_;
};

namespace detail {

class DumperImpl;

/// What a caller hands in, as an IValue.
template <class Value>
c10::IValue make_ivalue(const Value& value) {
  if constexpr (std::is_same_v<Value, std::nullptr_t>) {
    return c10::IValue();
  } else if constexpr (std::is_convertible_v<const Value&, at::Tensor>) {
    return c10::IValue(at::Tensor(value));
  } else if constexpr (std::is_same_v<Value, bool>) {
    return c10::IValue(value);
  } else if constexpr (std::is_integral_v<Value>) {
    return c10::IValue(static_cast<std::int64_t>(value));
  } else if constexpr (std::is_floating_point_v<Value>) {
    return c10::IValue(static_cast<double>(value));
  } else if constexpr (std::is_convertible_v<const Value&, const char*>) {
    const char* const text = value;
    return text != nullptr ? c10::IValue(std::string(text)) : c10::IValue();
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return c10::IValue(std::string(std::string_view(value)));
  } else {
    // An IValue would take any of these for a bool.
    static_assert(!std::is_pointer_v<Value> && !std::is_member_pointer_v<Value> && !std::is_array_v<Value>,
                  "dump: a pointer or an array is no value; pass what it points to, or a tensor over it "
                  "(at::from_blob)");
    static_assert(std::is_constructible_v<c10::IValue, const Value&>,
                  "dump: a value, or what a callable returns, must be a tensor or what a c10::IValue can hold");
    return c10::IValue(value);
  }
}

/// A borrowed value that becomes an IValue only once the filter has let it through.
class LazyValue {
 public:
  template <class Value>
  static LazyValue of(const Value& value) {
    LazyValue lazy;
    lazy.object_ = static_cast<const void*>(std::addressof(value));
    lazy.make_ = [](const void* object) -> c10::IValue {
      const Value& typed = *static_cast<const Value*>(object);
      if constexpr (std::is_convertible_v<const Value&, at::Tensor> || !std::is_invocable_v<Value&>) {
        return make_ivalue(typed);
      } else {
        if constexpr (std::is_pointer_v<Value>) {
          if (typed == nullptr) return c10::IValue();
        }
        // A callable is const here only because a temporary binds to `const&`.
        return make_ivalue(const_cast<Value&>(typed)());
      }
    };
    return lazy;
  }

  c10::IValue make() const { return make_(object_); }

 private:
  LazyValue() = default;
  const void* object_ = nullptr;
  c10::IValue (*make_)(const void*) = nullptr;
};

/// A borrowed range of named values, walked only when asked. Valid during one call.
class DictView {
 public:
  using Each = void (*)(void* context, std::string_view key, const LazyValue& value);

  template <class Dict>
  static DictView of(const Dict& dict) {
    DictView view;
    view.object_ = static_cast<const void*>(std::addressof(dict));
    view.visit_ = [](const void* object, Each each, void* context) {
      for (const auto& item : *static_cast<const Dict*>(object)) {
        if constexpr (has_key_and_value<std::decay_t<decltype(item)>>::value) {
          each(context, item.key(), LazyValue::of(item.value()));
        } else {
          each(context, item.first, LazyValue::of(item.second));
        }
      }
    };
    return view;
  }

  void visit(Each each, void* context) const { visit_(object_, each, context); }

 private:
  DictView() = default;
  const void* object_ = nullptr;
  void (*visit_)(const void*, Each, void*) = nullptr;
};

}  // namespace detail

/// While it lives, records of its participant stay in memory instead of becoming files; values are copied.
/// The innermost of nested captures gets the records. Outliving the Dumper is harmless.
/// Threads: records may come from any thread of the participant; read them when those are done.
class DBG_API CaptureScope {
 public:
  using Records = std::map<std::string, std::vector<DumpRecord>, std::less<>>;

  CaptureScope(CaptureScope&&) noexcept;
  CaptureScope& operator=(CaptureScope&&) = delete;
  ~CaptureScope();

  /// The records so far, by name, in order; a copy that shares the tensors. None once the scope was moved from.
  Records records() const;

 private:
  friend class Dumper;
  struct State;
  explicit CaptureScope(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// Records named values of a running model.
///
/// While off, `dump`, `dump_dict`, `dump_model` and `step` cost one relaxed load and a branch, and allocate nothing.
/// (`set_ctx` and `ContextScope` work while off too, for what they set counts once the Dumper is on.) While on, a call
/// writes one file `key=value___...pt` into `dir/exp_name/` (dbg/dump_record.h says what is in it), before it returns.
/// Nothing that is called from inside a model
/// (`dump`, `dump_dict`, `dump_model`, `step`, `set_ctx`) ever throws, unless `DumperConfig::strict` is on: faults are
/// counted by cause, logged at a limited rate, and leave the model's tensors as they were.
///
/// Step and dump index are kept per participant, the context per participant and thread: a thread that is new to the
/// participant starts with what the first thread that called `set_ctx` has set. A forked child's copy is off.
/// Threads: safe to call from any thread. `configure`, `add_plugin` and `set_interceptor` act from the next call on.
class DBG_API Dumper {
 public:
  /// Throws: ConfigError when the configuration is not acceptable.
  explicit Dumper(DumperConfig config = {});
  ~Dumper();
  Dumper(const Dumper&) = delete;
  Dumper& operator=(const Dumper&) = delete;

  /// The process's own, configured from the environment at its first use (dbg/runtime.h).
  static Dumper& global();

  bool is_enabled() const noexcept { return enabled_.load(std::memory_order_relaxed) != 0; }

  /// Records `value` under `name`.
  ///
  /// `value`: a tensor of any shape, dtype and device; what a `c10::IValue` can hold (dict, list, tuple, number, text,
  /// None); or a callable that returns one of these, evaluated once, and only after the filter let the dump through. A
  /// null `const char*` is None; other pointers, and arrays, do not compile.
  /// With `enable_grad`, a tensor that requires grad is also recorded as `grad__<name>` when its gradient arrives.
  template <class Value>
  DBG_ALWAYS_INLINE void dump(std::string_view name, const Value& value, TagList tags = {}) {
    if (enabled_.load(std::memory_order_relaxed) == 0) return;
    detail::with_tags_made_here(
        tags, [&](TagList made_here) { dump_enabled(name, detail::LazyValue::of(value), made_here, nullptr); });
  }
  template <class Value>
  DBG_ALWAYS_INLINE void dump(std::string_view name, const Value& value, TagList tags, const DumpOptions& options) {
    if (enabled_.load(std::memory_order_relaxed) == 0) return;
    detail::with_tags_made_here(
        tags, [&](TagList made_here) { dump_enabled(name, detail::LazyValue::of(value), made_here, &options); });
  }

  /// Records each entry of `dict` as `<prefix>_<key>`. `dict`: a range of pairs or of items with key() and value(), or
  /// an IValue that holds a dict with text keys.
  template <class Dict>
  void dump_dict(std::string_view prefix, const Dict& dict, TagList tags = {}, const DumpOptions& options = {}) {
    if (enabled_.load(std::memory_order_relaxed) == 0) return;
    if constexpr (std::is_same_v<Dict, c10::IValue>) {
      dump_ivalue_dict_enabled(prefix, dict, tags, options);
    } else {
      dump_dict_enabled(prefix, detail::DictView::of(dict), tags, options);
    }
  }

  /// Records every parameter of `model` (with `enable_model_value`) and its current gradient (`enable_model_grad`).
  ///
  /// `model`: a torch::nn::Module, anything with `named_parameters()` whose items have key()/value() or first/second,
  /// or a pointer to or holder of one. A parameter that a registered walk and an extra module share is written once.
  template <class Model>
  DumpModelReport dump_model(Model&& model, const DumpModelOptions& options = {}) {
    if (enabled_.load(std::memory_order_relaxed) == 0) return {};
    return dump_model_enabled(detail::ModelView::of(model), options);
  }

  /// Ends an iteration of the calling participant.
  void step() {
    if (enabled_.load(std::memory_order_relaxed) == 0) return;
    step_enabled();
  }

  /// Merges `tags` into the calling thread's context, which is added to the tags of each dump; None removes a key.
  /// Setting what is set already allocates nothing.
  void set_ctx(TagList tags);

  /// Keeps records of the calling participant in memory while the result lives.
  [[nodiscard]] CaptureScope capture_output();

  /// Replaces the configuration. Throws: ConfigError and changes nothing when it is not acceptable.
  void configure(DumperConfig config);
  /// Changes some fields, each `key=value`. Throws: as above.
  void configure(const std::vector<std::string>& key_values);
  /// The same; without it a braced list could as well begin a DumperConfig, whose first fields are bool.
  void configure(std::initializer_list<std::string> key_values) { configure(std::vector<std::string>(key_values)); }

  /// Sets the calling participant's step, dump index and context, and the clean-up's flag, back to the start.
  /// Configuration and exp_name stay; records that are there stay (a taken name moves on to the next free dump_index).
  void reset();

  DumperState state() const;

  /// Throws: ConfigError on nullptr.
  PluginHandle add_plugin(std::shared_ptr<FrameworkPlugin> plugin);

  /// The layer that a module path such as `model.layers.3.mlp` lies in, counted over the whole model: the first
  /// plugin's answer, else the number in the path. For tags: `{{"layer_id", ...}}`; nullopt when nobody knows.
  std::optional<std::int64_t> layer_id_of(std::string_view module_path);

  /// Hands every value that passes the filter to `interceptor`, before it is written; an empty one ends that.
  void set_interceptor(ValueInterceptor interceptor);

  /// Asks `listener` about the configuration, now and each time before `configure` takes another; an empty one ends
  /// that. What it throws comes out of there: `configure` has then changed nothing, and the listener stays set. Calls
  /// come one after the other, on the thread that configures, with no lock held; other threads that configure wait
  /// meanwhile.
  void set_config_listener(ConfigListener listener);

  /// Makes all ranks of `world` write into folders of one name, also on nodes that share no folder: whoever attaches
  /// first proposes an exp_name through the world's store, the others take it. To be called before the first record,
  /// on every rank; ranks that are threads and share a Dumper may each do so. (dbg/runtime.h for the process's own.)
  ///
  /// A configured exp_name wins. `reset()` keeps the name, and another Dumper that attaches gets the same. After the
  /// first record the name in use stays, and is what is proposed: a warning says so when the launch has another. When
  /// the store is gone, does not answer or refuses, the first record that needs the name costs one warning, and the
  /// ranks agree by a file in `dir`, as they do without a world; attaching again asks again.
  ///
  /// Launches on one store are told apart by World's key prefix and torchelastic's run id and restart count. Records
  /// bear the rank of their participant, whatever the world's. A world of one rank changes nothing; neither does a call
  /// in a forked child.
  /// Threads: safe to call from any thread. Waits for the store for 5 seconds or the world's timeout at most, for no
  /// rank, and keeps nothing of `world`.
  void attach(const World& world);

 private:
  friend class ContextScope;

  Dumper(DumperConfig config, std::atomic<unsigned char>* mirror);
  // `options` null: the defaults. Built only here, since a default argument would cost calls that are off.
  void dump_enabled(std::string_view name, const detail::LazyValue& value, TagList tags, const DumpOptions* options);
  void dump_dict_enabled(std::string_view prefix, const detail::DictView& dict, TagList tags,
                         const DumpOptions& options);
  void dump_ivalue_dict_enabled(std::string_view prefix, const c10::IValue& dict, TagList tags,
                                const DumpOptions& options);
  DumpModelReport dump_model_enabled(const detail::ModelView& model, const DumpModelOptions& options);
  void step_enabled();

  std::atomic<unsigned char> enabled_{0};
  std::shared_ptr<detail::DumperImpl> impl_;
};

/// Adds to the calling thread's context until the end of the scope; the outer values are then restored, in their order.
/// After a `reset()` in between nothing is. Other threads never see it: what they start with is what `set_ctx` sets.
/// While off it costs what it costs while on, since it counts once the Dumper is switched on inside it.
/// Threads: ends on the thread that made it.
class DBG_API ContextScope {
 public:
  /// Keep the result: a scope without a name ends at once.
  [[nodiscard]] ContextScope(Dumper& dumper, TagList tags);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  static constexpr std::size_t kStateBytes = 16 * sizeof(void*);
  struct State;
  State& state() noexcept;

  // A State, made in place: a scope a layer should cost no allocation of its own.
  alignas(void*) unsigned char state_[kStateBytes];
  bool is_entered_ = false;
};

}  // namespace dbg
